"""The chats whose memory is in RAM: a few; the others wait in their session files."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.bridge.messages import SessionNotSaved, SessionSaved
from app.bridge.port import ChatModel, ChatSession
from app.bridge.writer import SessionWriter

N_SESSIONS = 3
"""Chats kept in memory; each holds at most n_ctx tokens."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    session: ChatSession
    n_ctx_asked: int
    leaf_id: int = 0
    is_dirty: bool = False


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

    def take(self, chat_id: int, n_ctx: int) -> tuple[ChatSession, str]:
        """Return a chat's session: from memory, else from its file, else empty.

        Returns: the session, and why its file could not be used, a sentence; "" where it could or there is none.
        """
        entry = self._entries.get(chat_id)
        if entry is not None and entry.n_ctx_asked == n_ctx:
            self._entries.move_to_end(chat_id)
            return entry.session, ""
        self.drop(chat_id)
        while len(self._entries) >= N_SESSIONS:
            self._evict()
        session = self._open(n_ctx)
        self._entries[chat_id] = _Entry(session, n_ctx)
        path = self.path(chat_id)
        return session, session.load(path) if path.exists() else ""

    def mark_dirty(self, chat_id: int, leaf_id: int) -> None:
        """Note that a chat's memory now goes to another message than its file."""
        entry = self._entries[chat_id]
        entry.leaf_id, entry.is_dirty = leaf_id, True

    def save(self, chat_id: int) -> None:
        """Have a chat's memory written where it has changed; what fails costs time later, no text."""
        entry = self._entries.get(chat_id)
        if entry is None or not entry.is_dirty:
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
            self._evict()
        self._writer.close()

    def _evict(self) -> None:
        self.drop(next(iter(self._entries)))

    def _open(self, n_ctx: int) -> ChatSession:
        try:
            return self._model.open_session(n_ctx)
        except MemoryError:
            if not self._entries:
                raise
            while self._entries:
                self._evict()
            return self._model.open_session(n_ctx)
