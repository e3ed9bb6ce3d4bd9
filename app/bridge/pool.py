"""The chats whose memory is in RAM: a few; the others wait in their session files."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from app.bridge.context_view import ContextView
from app.bridge.messages import SessionNotSaved, SessionSaved
from app.bridge.port import ChatModel, ChatSession
from app.bridge.writer import SessionWriter

N_SESSIONS = 8
"""Chats kept in memory, and replies made at once; they share one budget of memory."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    session: ChatSession
    n_ctx_asked: int
    leaf_id: int = 0
    is_dirty: bool = False
    is_kept: bool = True


class SessionPool:
    """Sessions of one model by chat, the one used last at the end.

    Args:
        saved: called with what became of each file that was written, in the writing thread.

    Thread: engine thread.
    """

    def __init__(self, model: ChatModel, folder: Path, saved: Callable[[SessionSaved | SessionNotSaved], None]) -> None:
        self._model = model
        self._folder = folder
        self._saved = saved
        self._writer = SessionWriter()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()

    def path(self, chat_id: int) -> Path:
        """Return the file of a chat's session; each model has its own."""
        return self._folder / f"{chat_id}.{self._model.info.fingerprint[:16]}.kv"

    def is_full(self, busy: Collection[int]) -> bool:
        """Whether no further chat has room beside those that are busy."""
        return len(busy) >= N_SESSIONS

    def take(self, chat_id: int, n_ctx: int, busy: Collection[int]) -> tuple[ChatSession, str]:
        """Return a chat's session: from memory, else from its file, else empty.

        Args:
            busy: chats that have to stay.

        Returns: the session, and why its file could not be used, a sentence; "" where it could or there is none.
        """
        entry = self._entries.get(chat_id)
        if entry is not None and entry.n_ctx_asked == n_ctx:
            self._entries.move_to_end(chat_id)
        else:
            self.drop(chat_id)
            while len(self._entries) >= N_SESSIONS:
                self._evict(busy)
            entry = self._entries[chat_id] = _Entry(self._open(n_ctx, busy), n_ctx)
        # A chat that was in memory may have lost its cells to others when memory was short.
        path = self.path(chat_id)
        if entry.session.n_used or not path.exists():
            return entry.session, ""
        self._writer.wait(chat_id)
        return entry.session, entry.session.load(path)

    def in_memory(self, chat_id: int) -> ChatSession | None:
        """Return the session of a chat, where it is in memory."""
        entry = self._entries.get(chat_id)
        return entry.session if entry is not None else None

    def inspect(self, chat_id: int) -> ContextView:
        """Return what is in a chat's context, and in its file."""
        session, path = self.in_memory(chat_id), self.path(chat_id)
        view = session.inspect(chat_id) if session is not None else ContextView(chat_id)
        return replace(view, file_bytes=path.stat().st_size if path.exists() else 0)

    def restore(self, chat_id: int, n_ctx: int) -> None:
        """Have a chat in memory, where it has a file."""
        if self.path(chat_id).exists():
            self.take(chat_id, n_ctx, ())

    def mark_dirty(self, chat_id: int, leaf_id: int, *, is_kept: bool) -> None:
        """Note that a chat's memory now goes to another message than its file; one that is not kept gets none."""
        entry = self._entries[chat_id]
        entry.leaf_id, entry.is_dirty, entry.is_kept = leaf_id, True, is_kept

    def save(self, chat_id: int) -> None:
        """Have a chat's memory written where it has changed; what fails costs time later, no text."""
        entry = self._entries.get(chat_id)
        if entry is None or not (entry.is_dirty and entry.is_kept and entry.session.n_used):
            return
        entry.is_dirty = False
        path, fingerprint, leaf_id = self.path(chat_id), self._model.info.fingerprint, entry.leaf_id
        n_used = entry.session.n_used

        def done(n_bytes: int, error: OSError | None) -> None:
            if error is None:
                self._saved(SessionSaved(chat_id, leaf_id, fingerprint, path.name, n_used, n_bytes))
            else:
                log.warning("session of chat %d not saved: %s", chat_id, error)
                self._saved(SessionNotSaved(chat_id, error.strerror or str(error)))

        self._writer.submit(chat_id, entry.session.snapshot(), path, done)

    def drop(self, chat_id: int) -> None:
        """Save a chat's memory and let go of it; without effect where it is not in memory."""
        if chat_id in self._entries:
            self.save(chat_id)
            self._writer.wait(chat_id)
            self._entries.pop(chat_id).session.close()

    def close(self) -> None:
        """Save and let go of all of them."""
        while self._entries:
            self._evict(())
        self._writer.close()

    def _evict(self, busy: Collection[int]) -> None:
        self.drop(next(chat_id for chat_id in self._entries if chat_id not in busy))

    def _open(self, n_ctx: int, busy: Collection[int]) -> ChatSession:
        try:
            return self._model.open_session(n_ctx)
        except MemoryError:
            if not self._entries.keys() - set(busy):
                raise
            while self._entries.keys() - set(busy):
                self._evict(busy)
            return self._model.open_session(n_ctx)
