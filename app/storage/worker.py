"""The object that lives in the storage thread and runs every statement there."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sqlite3
import time
from pathlib import Path
from typing import assert_never

from PySide6.QtCore import QObject, QThread, QTimer, Signal

from app.bridge.messages import ReplyFinished, ReplyStarted, SessionSaved, TextChunk, UserError
from app.storage import sessions
from app.storage.bin import BIN_DAYS, Bin
from app.storage.chats import ChatStore
from app.storage.database import Database, is_damage
from app.storage.records import (
    AddMessages,
    ChatRestored,
    ChatsFound,
    CloseStore,
    DeleteChat,
    DeleteMessage,
    EmptyBin,
    ForkChat,
    KeepTrees,
    ListSessions,
    MarkRead,
    OpenChat,
    PinMessage,
    PinSession,
    ReadTrees,
    RenameChat,
    ReplySaved,
    SearchChats,
    SessionFile,
    SessionsListed,
    SetDiskBudget,
    SetDraft,
    SetOverflow,
    ShowBranch,
    StoreEvent,
    StoreFailed,
    StoreOpened,
    StoreRequest,
    TreesKept,
    TreesRead,
    UndoDelete,
    WipeSessions,
)
from app.storage.search import MessageIndex
from app.storage.session_table import SessionTable
from app.storage.trees import TreeTable

FLUSH_MS = 150
"""Streamed text waits at most so long; with the slowest commit measured (89 ms) that stays under a quarter second."""

log = logging.getLogger(__name__)


class _Tables:
    """What is done with one open database, by subject."""

    def __init__(self, database: Database) -> None:
        self.chats = ChatStore(database)
        self.bin = Bin(database)
        self.index = MessageIndex(database)
        self.sessions = SessionTable(database)
        self.trees = TreeTable(database)


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
        self._sessions = folder / sessions.FOLDER_NAME
        self._disk_budget = 0
        self._database: Database | None = None
        self._tables: _Tables | None = None
        self._pending: list[tuple[int, str]] = []
        self._flush_timer: QTimer | None = None

    def start(self) -> None:
        """Open the database and tell what is in it."""
        self._flush_timer = QTimer(self)
        self._flush_timer.setSingleShot(True)
        self._flush_timer.setInterval(FLUSH_MS)
        self._flush_timer.timeout.connect(self._flush)
        try:
            (self._sessions).mkdir(parents=True, exist_ok=True)
            database = Database.open(self._folder)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            # The program can be used, and says that nothing is kept.
            database = Database.in_memory(self._folder)
        self._database, self._tables = database, _Tables(database)
        try:
            self._open(database, self._tables)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _open(self, database: Database, tables: _Tables) -> None:
        chats = tables.chats
        if not database.is_readonly:
            chats.recover()
        self._tell(
            StoreOpened(
                *(chats.chats(), chats.next_id(), chats.draft(), database.notice),
                n_undo=0 if database.is_readonly else tables.bin.n_undo(),
                is_readonly=database.is_readonly,
            )
        )
        if not database.is_readonly:
            now = time.time()
            tables.bin.empty(now - BIN_DAYS * 86_400, self._sessions)
            sessions.remove_halves(self._sessions)
            self._prune(tables)
            database.backup_if_due(now)

    def on_request(self, request: StoreRequest) -> None:
        """Carry out a request of the window."""
        if isinstance(request, CloseStore):
            self._close()
            return
        tables = self._tables
        if tables is None:
            return
        try:
            self._write_pending(tables.chats)
            self._run(tables, request)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def on_engine_event(self, event: object) -> None:
        """Keep what the engine made: it comes here directly, so that text is safe however busy the window is."""
        tables = self._tables
        if tables is None:
            return
        store = tables.chats
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
                if self._database is not None:
                    self._database.backup_if_due(time.time())
            elif isinstance(event, SessionSaved):
                tables.sessions.keep(event)
                self._prune(tables)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)

    def _run(self, tables: _Tables, request: StoreRequest) -> None:
        chats = tables.chats
        match request:
            case AddMessages():
                chats.add_messages(request)
            case OpenChat():
                self._tell_content(chats, request.chat_id)
            case ShowBranch():
                chats.show_branch(request.chat_id, request.message_id)
                self._tell_content(chats, request.chat_id)
            case ForkChat():
                chats.fork(request)
                self._tell_content(chats, request.chat.id)
            case SetDraft():
                chats.set_draft(request.chat_id, request.text)
            case RenameChat():
                chats.rename(request.chat_id, request.title)
            case SetOverflow():
                chats.set_overflow(request.chat_id, request.overflow)
            case PinMessage():
                chats.pin_message(request.message_id, request.is_pinned)
            case MarkRead():
                chats.mark_read(request.chat_id, request.is_unread)
            case DeleteChat():
                tables.bin.delete_chat(request.chat_id)
            case DeleteMessage():
                leaf_id = chats.leaf_without(request.chat_id, request.message_id)
                tables.bin.delete_message(request.chat_id, request.message_id, leaf_id)
                self._tell_content(chats, request.chat_id)
            case UndoDelete():
                chat_id = tables.bin.undo()
                chat = None if chat_id is None else chats.chat(chat_id)
                if chat is not None:
                    self._tell(ChatRestored(chat))
            case EmptyBin():
                tables.bin.empty(time.time(), self._sessions)
            case SearchChats():
                self._tell(ChatsFound(request.text, tables.index.chats_with(request.text)))
            case SetDiskBudget():
                self._disk_budget = request.n_bytes
                self._prune(tables)
            case ListSessions():
                self._tell_sessions(tables)
            case PinSession():
                tables.sessions.pin(request.name, request.is_pinned)
                self._tell_sessions(tables)
            case WipeSessions():
                for name in request.names:
                    (self._sessions / name).unlink(missing_ok=True)
                self._tell_sessions(tables)
            case ReadTrees():
                self._tell(TreesRead(tables.trees.read(request.chat_ids), request.target))
            case KeepTrees():
                tables.trees.write(request.trees)
                self._tell(TreesKept(tuple(tree.chat for tree in request.trees)))
            case CloseStore():
                pass
            case _:
                assert_never(request)

    def _prune(self, tables: _Tables) -> None:
        sessions.prune(self._sessions, self._disk_budget, tables.sessions.pinned())

    def _tell_sessions(self, tables: _Tables) -> None:
        pinned = tables.sessions.pinned()
        titles = {chat.id: chat.title for chat in tables.chats.chats()}
        files = [
            SessionFile(e.name, titles.get(e.chat_id, ""), e.n_bytes, e.used_at, e.name in pinned)
            for e in reversed(sessions.entries(self._sessions))
        ]
        free = shutil.disk_usage(self._sessions).free
        self._tell(SessionsListed(tuple(files), sessions.budget(self._sessions, self._disk_budget), free))

    def _tell_content(self, chats: ChatStore, chat_id: int) -> None:
        content = chats.content(chat_id)
        if content is not None:
            self._tell(content)

    def _flush(self) -> None:
        if self._tables is not None:
            try:
                self._write_pending(self._tables.chats)
            except (sqlite3.Error, OSError) as error:
                self._fail(error)

    def _write_pending(self, store: ChatStore) -> None:
        if self._pending:
            # Kept until they are written: a full disk may have room again at the next flush.
            store.append_chunks(self._pending)
            self._pending = []

    def _close(self) -> None:
        self._flush()
        self._tables = None
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
