"""The engine of this program in the roles that the bridge needs.

Imported in the engine thread only, since it reads the engine's modules.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from functools import cache, cached_property, partial
from importlib import metadata
from pathlib import Path

import numpy as np

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextRow, ContextView, Cost
from app.bridge.convert import user_error
from app.bridge.free_memory import free_memory_bytes
from app.bridge.local_group import SlotGroup
from app.bridge.messages import (
    N_CTX_DEFAULT,
    EngineOptions,
    EstimateCost,
    Generate,
    ModelInfo,
    PromptMessage,
    ReplyRecord,
    ReplyStats,
    Sampling,
    UserError,
)
from app.bridge.places import model_name
from app.bridge.port import Broken, ChatSession, Ended, Generated, PortEvent, Prefilled, SessionCopy
from cext.executor import isa
from engine import Model, load_model
from engine.errors import ContextFullError, StateFileError
from engine.generate import Finished, GenerateParams, GenerateStats, TextDelta
from engine.prompt import Message, PromptBuilder
from engine.sampling import SamplerParams
from engine.scheduler import JobEvent, JobFailed, JobRequest
from engine.session import PrefillProgress, Session
from engine.session_file import SessionSnapshot
from engine.turns import Turn
from engine.types import QuantType

MIN_KV_BYTES = 256 << 20
SHARE_OF_FREE = 0.5
"""Of the memory that is free when a model is loaded, what its chats may take where no setting says so."""


class LocalEngine:
    """Loads models into this process."""

    def load_model(
        self, path: Path, n_threads: int | None, options: EngineOptions, progress: Callable[[float], None]
    ) -> LocalModel:
        """Load a model with its tokenizer and its chat template. Raises: EngineError, OSError, MemoryError."""
        model = load_model(path, n_threads=n_threads, progress=progress)
        try:
            return LocalModel(model, options)
        except BaseException:
            model.close()
            raise

    def explain(self, error: BaseException) -> UserError:
        """Return what a person should read about an error."""
        return user_error(error)


class LocalModel:
    """A loaded model. Chats share one context, and so one cache; one that wants a larger context has another."""

    def __init__(self, model: Model, options: EngineOptions) -> None:
        self._model = model
        model.chat_template.check()
        self._prompts = PromptBuilder(model.chat_template, model.tokenizer)
        self._kv_bytes_max = options.kv_bytes_max or max(int(SHARE_OF_FREE * free_memory_bytes()), MIN_KV_BYTES)
        self.kv_type_on_disk = QuantType[options.kv_type_on_disk.upper()] if options.kv_type_on_disk else None
        source = model.chat_template.source.encode(errors="surrogatepass")
        self._template_hash = hashlib.blake2b(source, digest_size=8).hexdigest()
        self._groups: dict[int, SlotGroup] = {}

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
        return LocalSession(self, self._group(n_ctx), n_ctx or self._n_ctx_usual)

    def cost(self, request: EstimateCost, session: ChatSession | None) -> Cost:
        """Return what a prompt would cost in a session, or in a new one. Raises: ChatTemplateError."""
        own = session if isinstance(session, LocalSession) else None
        group = own.group if own is not None else self._group(request.n_ctx)
        turns = self.turns(Generate(0, 0, -1, request.messages, Sampling(), 0, 0, began_at=request.began_at))
        slot_id = own.slot_id if own is not None else None
        found = group.call(partial(group.forecast, slot_id, turns, request.n_predict, _keys(request.out_ids)))
        n_ready = min(found.n_ready, found.n_prompt - 1)
        return Cost(len(turns[-2].tokens), n_ready, found.n_prompt - n_ready, found.n_left, found.n_leaving)

    def record(self, sampling: Sampling, n_predict: int, context_hash: str) -> ReplyRecord:
        """Return how a reply is made."""
        params = json.dumps({**asdict(sampling), "n_predict": n_predict}, sort_keys=True)
        return ReplyRecord(self._template_hash, params, _version(), isa(), context_hash)

    @property
    def _n_ctx_usual(self) -> int:
        return min(self._model.n_ctx_train, N_CTX_DEFAULT)

    def _group(self, n_ctx: int) -> SlotGroup:
        size = max(n_ctx, self._n_ctx_usual)
        if size not in self._groups:
            self._groups[size] = SlotGroup(self._model, size, self._kv_bytes_max)
        return self._groups[size]

    def turns(self, request: Generate) -> list[Turn]:
        """Return the turns of a conversation; a turn's key is its message's id. Raises: ChatTemplateError."""
        began = datetime.fromisoformat(request.began_at) if request.began_at else None
        return self._prompts.turns([self._message(m) for m in request.messages], str(request.reply_id), began)

    def close(self) -> None:
        """Let go of the weights."""
        for group in self._groups.values():
            group.close()
        self._model.close()

    def _message(self, message: PromptMessage) -> Message:
        tokens: tuple[int, ...] = ()
        if message.model_fp == self._model.fingerprint:
            tokens = tuple(np.frombuffer(message.token_ids, dtype="<i4").tolist())
        return Message(str(message.message_id), message.role, message.text, tokens, message.is_pinned)


class LocalSession:
    """The memory of one chat: a slot of a group.

    Attributes:
        group, slot_id: where it is.
    """

    def __init__(self, model: LocalModel, group: SlotGroup, n_ctx: int) -> None:
        self._model, self.group = model, group
        self.slot_id = group.take_slot()
        self._session = group.session(self.slot_id)
        group.call(partial(self._reset, n_ctx))

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
        return frozenset(int(key) for key in list(self._session.out_keys))

    def start(self, request: Generate, cancel: JobCancel, on_event: Callable[[PortEvent], None]) -> None:
        """Begin a reply, made in the group's thread."""
        turns = self._model.turns(request)
        sampling = request.sampling
        sampler = SamplerParams(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repeat_penalty=sampling.repeat_penalty,
            seed=secrets.randbits(32) if sampling.seed is None else sampling.seed,
        )
        share = partial(self.group.share, self.slot_id, turns, _keys(request.out_ids), request.overflow)
        record = self._model.record(replace(sampling, seed=sampler.seed), request.n_predict, self.group.call(share))
        job = JobRequest(turns, GenerateParams(sampler, request.n_predict), self.slot_id)
        is_stopping = request.overflow == "stop"
        cancel.pass_on(self.group.submit(job, partial(_pass_on, on_event, record, is_stopping)))

    def snapshot(self) -> SessionCopy:
        """Return a copy of the memory to be written."""
        return LocalCopy(self._session, self.group.call(self._session.snapshot))

    def load(self, path: Path) -> str:
        """Read the memory from a file; returns why it could not be used, "" where it could."""
        try:
            self.group.call(partial(self._session.load, path))
        except (StateFileError, ContextFullError, OSError) as error:
            return user_error(error).sentence
        return ""

    def inspect(self, chat_id: int) -> ContextView:
        """Return what is in the context."""
        return self.group.call(partial(self._inspect, chat_id))

    def _inspect(self, chat_id: int) -> ContextView:
        session = self._session
        rows = [ContextRow(int(key), True) for key in sorted(session.out_keys) if key.isdecimal()]
        pos = 0
        for span in session.spans:
            if span.key.isdecimal():
                rows.append(ContextRow(int(span.key), False, pos, span.n_tokens))
            pos += span.n_tokens
        params = session.ctx.params
        kv_type = params.type_k if params.type_k == params.type_v else f"{params.type_k} and {params.type_v}"
        text = session.ctx.get_model().tokenizer.decode(session.tokens)
        return ContextView(chat_id, tuple(rows), text, kv_type, session.n_used, session.n_ctx)

    def close(self) -> None:
        """Let go of the memory."""
        self.group.give_back(self.slot_id)

    def _reset(self, n_ctx: int) -> None:
        self._session.clear()
        self._session.n_ctx_max = n_ctx
        self._session.kv_type_on_disk = self._model.kv_type_on_disk


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


@cache
def _version() -> str:
    try:
        return metadata.version("causerie")
    except metadata.PackageNotFoundError:
        return "source"


def _keys(message_ids: frozenset[int]) -> set[str]:
    return {str(message_id) for message_id in message_ids}


def _pass_on(on_event: Callable[[PortEvent], None], record: ReplyRecord, is_stopping: bool, event: JobEvent) -> None:
    match event:
        case PrefillProgress():
            on_event(Prefilled(event.n_done, event.n_total, event.n_reused))
        case TextDelta():
            on_event(Generated(event.text))
        case Finished():
            ids = np.asarray(event.tokens, dtype="<i4").tobytes()
            on_event(Ended(event.reason, _stats(event.stats), ids, record))
        case JobFailed() if is_stopping and isinstance(event.error, ContextFullError):
            on_event(Ended("context", ReplyStats(), b""))
        case JobFailed():
            on_event(Broken(event.error))
        case _:
            pass  # who left the context is asked of the session


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
