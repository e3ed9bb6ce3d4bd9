"""What the bridge needs of an engine: three small roles, which the real one and the tests' one both play.

Nothing here imports the engine: the window paints its first frame before the engine's modules are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextView, Cost
from app.bridge.messages import (
    EngineOptions,
    EstimateCost,
    Finish,
    Generate,
    ModelInfo,
    ReplyRecord,
    ReplyStats,
    UserError,
)


@dataclass(frozen=True, slots=True)
class Prefilled:
    """Part of the prompt is computed: n_done of the n_total tokens that were not ready; n_reused were."""

    n_done: int
    n_total: int
    n_reused: int


@dataclass(frozen=True, slots=True)
class Generated:
    """One more token; its text may be empty while a character or a stop string is not complete."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is over; token_ids are the i32 bytes of the ids that make up its text."""

    finish: Finish
    stats: ReplyStats
    token_ids: bytes
    record: ReplyRecord = field(default_factory=ReplyRecord)


@dataclass(frozen=True, slots=True)
class Broken:
    """The reply is over because something went wrong."""

    error: Exception


PortEvent = Prefilled | Generated | Ended | Broken


class SessionCopy(Protocol):
    """A session as it was when the copy was made; it goes on meanwhile."""

    def write(self, path: Path) -> int:
        """Write it to a file, whole or not at all; returns its size in bytes. Any thread. Raises: OSError."""

    def close(self) -> None:
        """Let go of it."""


class ChatSession(Protocol):
    """The engine's memory of one chat.

    Thread: engine thread; the counts from any.
    """

    @property
    def n_ctx(self) -> int:
        """Tokens that the context holds."""

    @property
    def n_used(self) -> int:
        """Tokens in it."""

    @property
    def out_ids(self) -> frozenset[int]:
        """Ids of the messages that have left the context."""

    def start(self, request: Generate, cancel: JobCancel, on_event: Callable[[PortEvent], None]) -> None:
        """Begin a reply and return; other sessions' replies are made at the same time.

        Args:
            on_event: called in a thread of the engine's; it does not block. The last event is `Ended` or `Broken`.

        Raises: what the request itself makes impossible; no event comes then.
        """

    def snapshot(self) -> SessionCopy:
        """Return a copy of the memory to be written; takes no time worth mention."""

    def load(self, path: Path) -> str:
        """Read the memory from a file.

        Returns: why the file could not be used, a sentence, with the session still empty; "" where it could.
        """

    def inspect(self, chat_id: int) -> ContextView:
        """Return what is in the context."""

    def close(self) -> None:
        """Let go of the memory."""


class ChatModel(Protocol):
    """A loaded model."""

    @property
    def info(self) -> ModelInfo:
        """What a person may want to know of it."""

    def cost(self, request: EstimateCost, session: ChatSession | None) -> Cost:
        """Return what a prompt would cost in a session, or in a new one."""

    def open_session(self, n_ctx: int) -> ChatSession:
        """Make an empty session; n_ctx 0 lets the engine choose. Raises: MemoryError, and errors of the engine."""

    def close(self) -> None:
        """Let go of the weights; sessions are closed before."""


class ChatEngine(Protocol):
    """Loads models and says in words what went wrong."""

    def load_model(
        self, path: Path, n_threads: int | None, options: EngineOptions, progress: Callable[[float], None]
    ) -> ChatModel:
        """Load a model; an exception that `progress` raises ends the loading."""

    def explain(self, error: BaseException) -> UserError:
        """Return what a person should read about an error."""
