"""Keeps what `GenerationState` shows: the model's part, and each chat's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.bridge.messages import N_CTX_DEFAULT, ModelInfo, PrefillProgress, ReplyFinished, TextChunk
from app.models.cost import CostEstimate
from app.models.generation import GenerationState, GenerationValues, Phase
from app.models.replies import Reply


@dataclass(frozen=True, slots=True)
class _ChatStatus:
    n_ctx: int = 0
    n_used: int = 0
    n_reused: int = 0
    n_computed: int = 0
    n_to_compute: int = 0
    tok_s: float = 0.0
    n_generated: int = 0
    note: str = ""
    error: str = ""


class StatusBoard:
    """Writes into a `GenerationState` what is true for the chat that is shown.

    Thread: GUI thread.
    """

    def __init__(self, state: GenerationState) -> None:
        self._state = state
        self._chats: dict[int | None, _ChatStatus] = {}
        self._model: ModelInfo | None = None
        self._loading_name = ""
        self._load_fraction = 0.0
        self._error = ""

    @property
    def model(self) -> ModelInfo | None:
        """The model that is ready."""
        return self._model

    @property
    def is_loading(self) -> bool:
        """Whether a model is being loaded."""
        return bool(self._loading_name)

    def set_loading(self, name: str, fraction: float) -> None:
        """A model is being loaded: how far it is."""
        self._loading_name, self._load_fraction, self._model, self._error = name, fraction, None, ""

    def set_model(self, model: ModelInfo | None, error: str = "") -> None:
        """A model is ready, or none is and why."""
        self._loading_name, self._model, self._error = "", model, error

    def n_ctx_of_new(self, asked: int) -> int:
        """Return the tokens that the context of a new chat will hold; `asked` is what the settings say, 0 for nothing."""
        return asked or (min(self._model.n_ctx_train, N_CTX_DEFAULT) if self._model else 0)

    def open_chat(self, chat_id: int | None, n_used: int, n_ctx: int) -> None:
        """Note what a chat read from disk has in its context, where nothing newer is known."""
        self._chats.setdefault(chat_id, _ChatStatus(n_ctx=n_ctx, n_used=n_used))

    def forget_chat(self, chat_id: int | None) -> None:
        """Forget a chat."""
        self._chats.pop(chat_id, None)

    def start(self, chat_id: int, n_ctx: int) -> None:
        """A reply was asked for."""
        old = self._chats.get(chat_id, _ChatStatus())
        self._chats[chat_id] = _ChatStatus(n_ctx=old.n_ctx or n_ctx, n_used=old.n_used)

    def prefill(self, event: PrefillProgress) -> None:
        """Part of the prompt is computed."""
        self._chats[event.chat_id] = replace(
            self._of(event.chat_id),
            n_reused=event.n_reused,
            n_computed=event.n_done,
            n_to_compute=event.n_total,
            n_used=event.n_reused + event.n_done,
        )

    def text(self, event: TextChunk) -> None:
        """Text was generated."""
        old = self._of(event.chat_id)
        self._chats[event.chat_id] = replace(
            old, tok_s=event.tok_s, n_generated=event.n_generated, n_used=event.n_used, n_computed=old.n_to_compute
        )

    def finish(self, event: ReplyFinished, note: str) -> None:
        """A reply ended; `note` is what a person should know of it, one line."""
        stats = event.stats
        self._chats[event.chat_id] = _ChatStatus(
            n_ctx=event.n_ctx or self._of(event.chat_id).n_ctx,
            n_used=event.n_used or self._of(event.chat_id).n_used,
            n_reused=stats.n_reused,
            n_computed=stats.n_computed,
            n_to_compute=stats.n_computed,
            tok_s=stats.tok_s,
            n_generated=stats.n_generated,
            note=note,
            error=event.error.sentence if event.error else "",
        )

    def show(
        self, chat_id: int | None, reply: Reply | None, n_ctx_new: int, waiting_note: str, cost: CostEstimate
    ) -> None:
        """Bring the state up to date for the chat that is shown and the reply being made in it.

        Args:
            n_ctx_new: tokens that a chat's context will hold where none was made yet.
            waiting_note: line to show while the reply waits for its turn.
            cost: of the draft.
        """
        chat = self._of(chat_id)
        known = cost.known.cost if cost.known is not None and cost.known.chat_id == (chat_id or 0) else None
        phase = self._phase(reply)
        is_waiting = reply is not None and reply.record.state == "queued" and phase is Phase.PREFILL
        model_name = self._model.name if self._model else self._loading_name
        self._state.set(
            GenerationValues(
                phase=phase,
                model_name=model_name,
                load_fraction=self._load_fraction if self._loading_name else 0.0,
                n_ctx=chat.n_ctx or n_ctx_new,
                n_used=chat.n_used,
                n_reused=chat.n_reused,
                n_computed=chat.n_computed,
                n_to_compute=chat.n_to_compute,
                tok_s=chat.tok_s,
                n_generated=chat.n_generated,
                note=waiting_note if is_waiting else chat.note or self._model_note(chat),
                error=chat.error or self._error,
                n_draft=known.n_draft if known else 0,
                n_ready=known.n_ready if known else 0,
                n_missing=known.n_to_compute if known else 0,
                n_leaving=known.n_leaving if known else 0,
                n_left=known.n_left if known else 0,
                cost_s=cost.seconds,
            )
        )

    def _model_note(self, chat: _ChatStatus) -> str:
        """What is odd about the model, as long as there is nothing to say about a reply."""
        return self._model.note if self._model and not chat.n_computed else ""

    def _phase(self, reply: Reply | None) -> Phase:
        if reply is not None and reply.is_stopping:
            return Phase.STOPPING
        if self._loading_name and (reply is None or reply.record.state == "queued"):
            return Phase.LOADING
        if reply is not None:
            return Phase.GENERATING if reply.record.text else Phase.PREFILL
        return Phase.IDLE if self._model else Phase.NO_MODEL

    def _of(self, chat_id: int | None) -> _ChatStatus:
        return self._chats.get(chat_id, _ChatStatus())
