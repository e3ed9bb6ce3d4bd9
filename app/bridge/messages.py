"""The values that cross between the GUI thread and the engine, catalogue and storage threads.

Frozen and slotted, so that a value which two threads hold can never change under either of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from app.bridge.context_view import ContextView, CostKnown

Role = Literal["user", "assistant", "system"]
N_CTX_DEFAULT = 8192
"""Tokens a chat's context holds where no setting says so and the model was trained for more."""

Finish = Literal["stop", "length", "cancelled", "context", "failed"]
"""Why a reply ended: the model's own end, n_predict, Stop, no room left, an error."""


Overflow = Literal["shift", "stop", "summarise"]
"""What happens when a chat's context is full: the oldest messages leave; the reply ends and a person is asked; or they
leave and the model sums them up."""


@dataclass(frozen=True, slots=True)
class UserError:
    """What went wrong, in words for a person.

    Attributes:
        title: a few words.
        sentence: what happened, one sentence.
        remedy: what to do about it, one sentence; may be empty.
    """

    title: str
    sentence: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class ContextNeed:
    """The memory that a model takes with a context of n_ctx tokens, kept as `type_kv`."""

    type_kv: str
    n_ctx: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model file as the picker lists it.

    Attributes:
        name: the file's name, without its ending.
        n_params: number of weights.
        quant: the mixture of types ("Q4_K_M").
        n_ctx_train: context the model was trained with, in tokens.
        size_bytes: size of the file, all parts together.
        need_bytes: memory needed to load it and open a chat; 0 while nobody has looked.
        problem: what is wrong with the file; empty where nothing is.
        note: something worth knowing that is no fault ("no chat template: plain text").
        origin: where it was found: a program, a folder or a package.
        contexts: what it takes with other contexts, by type and then ascending.
        active_bytes: weights that a token has to read.
        tok_s: tokens a second to expect; 0 where it is not known.
    """

    path: Path
    name: str
    arch: str = ""
    n_params: int = 0
    quant: str = ""
    n_ctx_train: int = 0
    size_bytes: int = 0
    need_bytes: int = 0
    problem: str = ""
    note: str = ""
    origin: str = ""
    contexts: tuple[ContextNeed, ...] = ()
    active_bytes: int = 0
    tok_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; the meaning of each is the engine's `SamplerParams`.

    Attributes:
        seed: None draws one.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """One message of a prompt.

    Attributes:
        message_id: the store's id; tells which messages left the context.
        token_ids: i32 bytes of the ids the model made, which are used again as they are; empty to tokenise the text.
        model_fp: fingerprint of the model that made them; another model tokenises the text.
        is_pinned: it never leaves the context.
    """

    message_id: int
    role: Role
    text: str
    token_ids: bytes = b""
    model_fp: str = ""
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the memory of chats is kept.

    Attributes:
        kv_bytes_max: memory that all chats together may take; 0: half of what is free.
        kv_type_on_disk: type of keys and values in session files ("q8_0"); "": as in memory.
    """

    kv_bytes_max: int = 0
    kv_type_on_disk: str = ""


@dataclass(frozen=True, slots=True)
class LoadModel:
    """Load a model and let go of the one before."""

    job_id: int
    path: str
    n_threads: int | None = None
    options: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True)
class Generate:
    """Make a reply.

    Attributes:
        reply_id: id of the message to be written.
        messages: the branch from its root to the message to answer.
        n_ctx: tokens the chat's context holds; 0 lets the engine choose.
        out_ids: messages that have left the chat's context before.
        began_at: local time of the chat's first Send in ISO form, which templates may put into the prompt.
        is_temporary: nothing of the chat is written.
        overflow: when the context is full the oldest messages leave ("shift"), or the reply ends ("stop").
    """

    job_id: int
    chat_id: int
    reply_id: int
    messages: tuple[PromptMessage, ...]
    sampling: Sampling
    n_predict: int
    n_ctx: int
    out_ids: frozenset[int] = frozenset()
    began_at: str = ""
    is_temporary: bool = False
    overflow: Overflow = "shift"


@dataclass(frozen=True, slots=True)
class RestoreChat:
    """Read a chat's memory from its file, for a reply that may be asked for soon."""

    chat_id: int
    n_ctx: int


@dataclass(frozen=True, slots=True)
class EstimateCost:
    """Ask what sending a draft would cost; `CostKnown` answers.

    Attributes:
        draft: the text, the last of the messages.
        messages, n_predict, n_ctx, out_ids, began_at: as in `Generate`.
    """

    chat_id: int
    draft: str
    messages: tuple[PromptMessage, ...]
    n_predict: int
    n_ctx: int
    out_ids: frozenset[int] = frozenset()
    began_at: str = ""


@dataclass(frozen=True, slots=True)
class InspectChat:
    """Ask what is in a chat's context; `ContextView` answers."""

    chat_id: int


@dataclass(frozen=True, slots=True)
class SaveChat:
    """Write a chat's memory to its file where it has changed."""

    chat_id: int


@dataclass(frozen=True, slots=True)
class ForgetChat:
    """Save a chat's memory and let go of it."""

    chat_id: int


@dataclass(frozen=True, slots=True)
class CloseEngine:
    """Save what is in memory, let go of everything and end the thread."""


EngineRequest = LoadModel | Generate | RestoreChat | EstimateCost | InspectChat | SaveChat | ForgetChat | CloseEngine


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model that is loaded."""

    path: str
    name: str
    arch: str
    n_ctx_train: int
    fingerprint: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """How far loading is, 0 to 1."""

    job_id: int
    fraction: float


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is ready."""

    job_id: int
    info: ModelInfo


@dataclass(frozen=True, slots=True)
class JobFailed:
    """A job that is no reply (loading) ended without a result."""

    job_id: int
    error: UserError


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A reply's turn has come; until now its job waited."""

    job_id: int
    chat_id: int
    message_id: int


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the prompt is computed.

    Attributes:
        n_done: tokens computed so far, of n_total that were not ready.
        n_reused: tokens that were ready.
    """

    job_id: int
    chat_id: int
    n_done: int
    n_total: int
    n_reused: int


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Text that was generated since the chunk before; never cut inside a character."""

    job_id: int
    chat_id: int
    message_id: int
    text: str
    n_generated: int
    n_used: int
    tok_s: float


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """What a reply took."""

    n_prompt: int = 0
    n_reused: int = 0
    n_computed: int = 0
    n_generated: int = 0
    prefill_ms: float = 0.0
    gen_ms: float = 0.0
    tok_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplyRecord:
    """How a reply was made, so that it can be made again.

    Attributes:
        template_hash: of the chat template.
        params: JSON of the sampling with its seed, and n_predict.
        engine, isa: version and instruction set of the engine.
        context_hash: of the tokens that the reply was made from; it begins with "shifted" where messages had left.
    """

    template_hash: str = ""
    params: str = ""
    engine: str = ""
    isa: str = ""
    context_hash: str = ""


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """A reply ended, in whatever way; its text has gone out as chunks before.

    Attributes:
        token_ids: i32 bytes of the ids that make up its text.
        out_ids: all messages that are out of the context now.
        note: something about the context a person should know, one line.
    """

    job_id: int
    chat_id: int
    message_id: int
    finish: Finish
    stats: ReplyStats = field(default_factory=ReplyStats)
    error: UserError | None = None
    token_ids: bytes = b""
    model_fp: str = ""
    out_ids: frozenset[int] = frozenset()
    n_used: int = 0
    n_ctx: int = 0
    note: str = ""
    record: ReplyRecord = field(default_factory=ReplyRecord)


@dataclass(frozen=True, slots=True)
class SessionSaved:
    """The memory of a chat was written to a file."""

    chat_id: int
    message_id: int
    model_fp: str
    file: str
    n_tokens: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class SessionNotSaved:
    """The memory of a chat could not be written; its text is safe, and will be computed again."""

    chat_id: int
    reason: str


EngineEvent = (
    ModelLoading
    | ModelLoaded
    | JobFailed
    | ReplyStarted
    | PrefillProgress
    | TextChunk
    | ReplyFinished
    | SessionSaved
    | SessionNotSaved
    | CostKnown
    | ContextView
)


@dataclass(frozen=True, slots=True)
class DetailRow:
    """One fact of a model file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """What a model file says of itself.

    Attributes:
        about: the facts people ask for first.
        sampling: what the makers recommend (`general.sampling.*`).
        tensors: tensors and bytes by type.
        metadata: all of it, long values shortened.
        template: the chat template; sample: what it makes of a short conversation, or why it does not.
        source_sha256: the hash that whoever fetched the file kept, or "".
        problem: why nothing could be read, or "".
    """

    path: Path
    about: tuple[DetailRow, ...] = ()
    sampling: tuple[DetailRow, ...] = ()
    tensors: tuple[DetailRow, ...] = ()
    metadata: tuple[DetailRow, ...] = ()
    template: str = ""
    sample: str = ""
    source_sha256: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ModelVerified:
    """A file's hash beside the one that its source gave; either may be unknown ("")."""

    path: Path
    sha256: str = ""
    source_sha256: str = ""
    problem: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the file is what its source says."""
        return bool(self.sha256) and self.sha256 == self.source_sha256


@dataclass(frozen=True, slots=True)
class ScanModels:
    """Look for models in these folders, in the built-in places and in installed packages."""

    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelsFound:
    """What was found, and the memory free at that time."""

    entries: tuple[ModelEntry, ...]
    free_bytes: int
