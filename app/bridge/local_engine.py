"""The engine of this program in the roles that the bridge needs.

Imported in the engine thread only, since it reads the engine's modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from app.bridge.cancel import JobCancel
from app.bridge.convert import user_error
from app.bridge.messages import N_CTX_DEFAULT, Generate, ModelInfo, PromptMessage, ReplyStats, UserError
from app.bridge.places import model_name
from app.bridge.port import Ended, Generated, PortEvent, Prefilled, SessionCopy
from engine import ContextParams, Model, create_context, load_model
from engine.cancel import CancelFlag
from engine.errors import ContextFullError, StateFileError
from engine.generate import Finished, GenerateParams, GenerateStats, TextDelta, generate
from engine.prompt import Message, PromptBuilder
from engine.sampling import SamplerParams
from engine.session import PrefillProgress, Session, TurnsLeft
from engine.session_file import SessionSnapshot
from engine.turns import Turn


class LocalEngine:
    """Loads models into this process."""

    def load_model(self, path: Path, n_threads: int | None, progress: Callable[[float], None]) -> LocalModel:
        """Load a model with its tokenizer and its chat template. Raises: EngineError, OSError, MemoryError."""
        model = load_model(path, n_threads=n_threads, progress=progress)
        try:
            return LocalModel(model)
        except BaseException:
            model.close()
            raise

    def explain(self, error: BaseException) -> UserError:
        """Return what a person should read about an error."""
        return user_error(error)


class LocalModel:
    """A loaded model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        model.chat_template.check()
        self._prompts = PromptBuilder(model.chat_template, model.tokenizer)

    @cached_property
    def info(self) -> ModelInfo:
        """What a person may want to know of it."""
        model = self._model
        note = {
            "file": "",
            "chatml": "This model has no chat template: ChatML is used.",
            "plain": "This is a base model without a chat template: it goes on with plain text.",
        }[model.chat_template.kind]
        name = model_name(model.path)
        return ModelInfo(str(model.path), name, model.gguf.architecture, model.n_ctx_train, model.fingerprint, note)

    def open_session(self, n_ctx: int) -> LocalSession:
        """Make an empty session. Raises: EngineError, MemoryError."""
        n_ctx = n_ctx or min(self._model.n_ctx_train, N_CTX_DEFAULT)
        ctx = create_context(self._model, ContextParams(n_ctx=n_ctx, n_threads=self._model.n_threads))
        return LocalSession(self, Session(ctx))

    def turns(self, request: Generate) -> list[Turn]:
        """Return the turns of a conversation; a turn's key is its message's id. Raises: ChatTemplateError."""
        began = datetime.fromisoformat(request.began_at) if request.began_at else None
        return self._prompts.turns([self._message(m) for m in request.messages], str(request.reply_id), began)

    def close(self) -> None:
        """Let go of the weights."""
        self._model.close()

    def _message(self, message: PromptMessage) -> Message:
        tokens: tuple[int, ...] = ()
        if message.model_fp == self._model.fingerprint:
            tokens = tuple(np.frombuffer(message.token_ids, dtype="<i4").tolist())
        return Message(str(message.message_id), message.role, message.text, tokens, message.is_pinned)


class LocalSession:
    """The memory of one chat, in a context of its own."""

    def __init__(self, model: LocalModel, session: Session) -> None:
        self._model = model
        self._session = session

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""
        return self._session.n_ctx

    @property
    def n_used(self) -> int:
        """Tokens in it."""
        return self._session.n_used

    @property
    def out_ids(self) -> frozenset[int]:
        """Ids of the messages that have left the context."""
        return frozenset(int(key) for key in self._session.out_keys)

    def reply(self, request: Generate, cancel: JobCancel) -> Iterator[PortEvent]:
        """Make a reply."""
        if self._session.n_used == 0:
            # Without its saved memory the chat goes on from the turns it had, as it was shown.
            self._session.out_keys = {str(message_id) for message_id in request.out_ids}
        turns = self._model.turns(request)
        sampling = request.sampling
        sampler = SamplerParams(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
            seed=sampling.seed,
        )
        flag = CancelFlag()
        with cancel.passed_on(flag.set):
            for event in generate(self._session, turns, GenerateParams(sampler, request.n_predict), flag):
                match event:
                    case PrefillProgress():
                        yield Prefilled(event.n_done, event.n_total, event.n_reused)
                    case TextDelta():
                        yield Generated(event.text)
                    case TurnsLeft():
                        pass
                    case Finished():
                        ids = np.asarray(event.tokens, dtype="<i4").tobytes()
                        yield Ended(event.reason, _stats(event.stats), ids)

    def snapshot(self) -> SessionCopy:
        """Return a copy of the memory to be written."""
        return LocalCopy(self._session, self._session.snapshot())

    def load(self, path: Path) -> str:
        """Read the memory from a file; returns why it could not be used, "" where it could."""
        try:
            self._session.load(path)
        except (StateFileError, ContextFullError, OSError) as error:
            return user_error(error).sentence
        return ""

    def close(self) -> None:
        """Let go of the memory."""
        self._session.ctx.close()


class LocalCopy:
    """A session as it was, on its way to its file."""

    def __init__(self, session: Session, snapshot: SessionSnapshot) -> None:
        self._session, self._snapshot = session, snapshot

    def write(self, path: Path) -> int:
        """Add to the file what it lacks; returns its size in bytes. Raises: OSError."""
        return self._session.log_at(path).append(self._snapshot)

    def close(self) -> None:
        """Let go of it."""
        self._snapshot.close()


def _stats(stats: GenerateStats) -> ReplyStats:
    return ReplyStats(
        n_prompt=stats.n_prompt,
        n_reused=stats.n_reused,
        n_computed=stats.n_computed,
        n_generated=stats.n_generated,
        prefill_ms=stats.prefill_ms,
        gen_ms=stats.gen_ms,
        tok_s=stats.tok_s,
    )
