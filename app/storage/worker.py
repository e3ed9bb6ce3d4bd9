"""The object that lives in the storage thread and runs every statement there."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from pathlib import Path
from typing import assert_never

from PySide6.QtCore import QObject, QThread, QTimer, Signal

from app.bridge.messages import ReplyFinished, ReplyStarted, SessionSaved, TextChunk, UserError
from app.storage import sessions
from app.storage.chats import ChatStore
from app.storage.database import Database, is_damage
from app.storage.records import (
    AddMessages,
    ChatRestored,
    CloseStore,
    DeleteChat,
    MarkRead,
    OpenChat,
    RenameChat,
    ReplySaved,
    SetDraft,
    StoreEvent,
    StoreFailed,
    StoreOpened,
    StoreRequest,
    UndoDelete,
)

FLUSH_MS = 150
"""Streamed text waits at most so long; with the slowest commit measured (89 ms) that stays under a quarter second."""

log = logging.getLogger(__name__)


class StorageWorker(QObject):
    """Owns the writing connection; takes requests of the window and events of the engine in the order they come.

    Signals:
        happened(StoreEvent)

    Thread: the storage thread, which must have an event loop; made in any thread and moved there.
    """

    happened = Signal(object)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._database: Database | None = None
        self._store: ChatStore | None = None
        self._pending: list[tuple[int, str]] = []
        self._flush_timer: QTimer | None = None

    def start(self) -> None:
        """Open the database and tell what is in it."""
        self._flush_timer = QTimer(self)
        self._flush_timer.setSingleShot(True)
        self._flush_timer.setInterval(FLUSH_MS)
        self._flush_timer.timeout.connect(self._flush)
        try:
            (self._folder / sessions.FOLDER_NAME).mkdir(parents=True, exist_ok=True)
            database = Database.open(self._folder)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            # The program can be used, and says that nothing is kept.
            database = Database.in_memory(self._folder)
        self._database, self._store = database, ChatStore(database)
        try:
            if not database.is_readonly:
                self._store.recover()
            store = self._store
            self._tell(StoreOpened(store.chats(), store.next_id(), store.draft(), database.notice))
            if not database.is_readonly:
                self._tidy(database, store)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def on_request(self, request: StoreRequest) -> None:
        """Carry out a request of the window."""
        if isinstance(request, CloseStore):
            self._close()
            return
        store = self._store
        if store is None:
            return
        try:
            self._write_pending(store)
            self._run(store, request)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def on_engine_event(self, event: object) -> None:
        """Keep what the engine made: it comes here directly, so that text is safe however busy the window is."""
        store = self._store
        if store is None:
            return
        try:
            if isinstance(event, TextChunk):
                self._pending.append((event.message_id, event.text))
                if self._flush_timer is not None and not self._flush_timer.isActive():
                    self._flush_timer.start()
            elif isinstance(event, ReplyStarted):
                store.start_reply(event.message_id)
            elif isinstance(event, ReplyFinished):
                self._write_pending(store)
                store.finish_reply(event)
                self._tell(ReplySaved(event.message_id))
            elif isinstance(event, SessionSaved):
                store.keep_session(event)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _run(self, store: ChatStore, request: StoreRequest) -> None:
        match request:
            case AddMessages():
                store.add_messages(request)
            case OpenChat():
                content = store.content(request.chat_id)
                if content is not None:
                    self._tell(content)
            case SetDraft():
                store.set_draft(request.chat_id, request.text)
            case RenameChat():
                store.rename(request.chat_id, request.title)
            case MarkRead():
                store.mark_read(request.chat_id, request.is_unread)
            case DeleteChat():
                store.delete(request.chat_id)
            case UndoDelete():
                chat = store.undo_delete()
                if chat is not None:
                    self._tell(ChatRestored(chat))
            case CloseStore():
                pass
            case _:
                assert_never(request)

    def _flush(self) -> None:
        if self._store is not None:
            try:
                self._write_pending(self._store)
            except (sqlite3.Error, OSError) as error:
                self._fail(error)

    def _write_pending(self, store: ChatStore) -> None:
        if self._pending:
            # Kept until they are written: a full disk may have room again at the next flush.
            store.append_chunks(self._pending)
            self._pending = []

    def _tidy(self, database: Database, store: ChatStore) -> None:
        now = time.time()
        store.empty_bin(now, self._folder / sessions.FOLDER_NAME)
        sessions.prune(self._folder / sessions.FOLDER_NAME)
        database.backup_if_due(now)

    def _close(self) -> None:
        self._flush()
        self._store = None
        if self._flush_timer is not None:
            self._flush_timer.stop()
        if self._database is not None:
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None
        QThread.currentThread().quit()

    def _fail(self, error: sqlite3.Error | OSError) -> None:
        log.error("storage: %s", error)
        self._tell(StoreFailed(_user_error(error, self._folder)))

    def _tell(self, event: StoreEvent) -> None:
        self.happened.emit(event)


def _user_error(error: sqlite3.Error | OSError, folder: Path) -> UserError:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return UserError(
            "Damaged chats",
            "The file of your chats is damaged.",
            "Close Causerie and start it again: it keeps the damaged file and goes on with the last backup.",
        )
    if code == sqlite3.SQLITE_FULL:
        return UserError("Disk full", "The disk is full: the last change was not kept.", "Make room and try again.")
    if code == sqlite3.SQLITE_READONLY:
        return UserError("Read only", "Your chats can only be read: the last change was not kept.")
    return UserError(
        "Not kept",
        f"Chats cannot be kept in {folder}: {error}.",
        "See that the folder can be written to and that the disk has room.",
    )
