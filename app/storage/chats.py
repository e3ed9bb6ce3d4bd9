"""Chats and messages in the database: every statement that the program runs on them."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from app.bridge.messages import ReplyFinished, SessionSaved
from app.storage.database import Database, Durability
from app.storage.records import AddMessages, ChatContent, ChatRecord, MessageRecord, MessageState

BIN_DAYS = 30
"""Days that a deleted chat can be brought back."""

_CHAT = "id, title, used_at, leaf_id, frozen, model_ref, n_ctx, draft, unread, pinned"

_BRANCH = """
WITH RECURSIVE branch(id, depth) AS (
    SELECT ?, 0 UNION ALL
    SELECT m.parent_id, depth + 1 FROM branch JOIN message m ON m.id = branch.id WHERE m.parent_id IS NOT NULL
)
SELECT m.id, m.chat_id, m.parent_id, m.role, m.text, m.state, m.pinned, m.error,
       g.token_ids, g.model_fp, g.n_generated, g.gen_ms
FROM branch JOIN message m ON m.id = branch.id LEFT JOIN generation g ON g.message_id = m.id
ORDER BY depth DESC"""


class ChatStore:
    """What is done with chats, on one open database.

    Thread: the thread of the database.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def chats(self) -> tuple[ChatRecord, ...]:
        """Return the chats that are not in the bin, the one used last first."""
        rows = self._db.connection.execute(
            f"SELECT {_CHAT} FROM chat WHERE deleted_at IS NULL ORDER BY used_at DESC, id DESC"
        )
        return tuple(_chat_record(row) for row in rows)

    def next_id(self) -> int:
        """Return a number above every id of a chat or a message."""
        row = self._db.connection.execute(
            "SELECT max(coalesce((SELECT max(id) FROM chat), 0), coalesce((SELECT max(id) FROM message), 0)) + 1"
        ).fetchone()
        return int(row[0])

    def recover(self) -> None:
        """Fold the text of replies that were being written when the program ended, and mark them as interrupted."""
        query = "SELECT id FROM message WHERE state IN ('queued', 'streaming')"
        unfinished = [int(row[0]) for row in self._db.connection.execute(query)]
        if unfinished:
            with self._db.transaction(Durability.FULL):
                for message_id in unfinished:
                    self._fold(message_id)
                    self._set_state(message_id, "interrupted")

    def add_messages(self, request: AddMessages) -> None:
        """Keep new messages and their chat; on disk, against a loss of power too, when this returns."""
        chat = request.chat
        with self._db.transaction(Durability.FULL) as connection:
            connection.execute(
                f"INSERT INTO chat({_CHAT}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET "
                "title=excluded.title, used_at=excluded.used_at, leaf_id=excluded.leaf_id, frozen=excluded.frozen, "
                "model_ref=excluded.model_ref, n_ctx=excluded.n_ctx, draft=excluded.draft, unread=excluded.unread",
                (
                    *(chat.id, chat.title, chat.used_at, chat.leaf_id, chat.frozen, chat.model_ref),
                    *(chat.n_ctx, chat.draft, chat.is_unread, chat.is_pinned),
                ),
            )
            connection.executemany(
                "INSERT INTO message(id, chat_id, parent_id, role, text, state, pinned, error, created_at) "
                "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (m.id, m.chat_id, m.parent_id, m.role, m.text, m.state, m.is_pinned, m.error, chat.used_at)
                    for m in request.messages
                ],
            )

    def start_reply(self, message_id: int) -> None:
        """Mark a queued reply as being written."""
        with self._db.transaction(Durability.NORMAL):
            self._set_state(message_id, "streaming")

    def append_chunks(self, chunks: list[tuple[int, str]]) -> None:
        """Add streamed text: (message_id, text) in order. What is written does not grow with the reply."""
        with self._db.transaction(Durability.NORMAL) as connection:
            # A reply of a chat that was deleted for good has no row to belong to.
            connection.executemany(
                "INSERT INTO chunk SELECT m.id, (SELECT coalesce(max(seq) + 1, 0) FROM chunk WHERE message_id = m.id), ? "
                "FROM message m WHERE m.id = ?",
                [(text, message_id) for message_id, text in chunks],
            )

    def finish_reply(self, event: ReplyFinished) -> None:
        """Fold a reply's text and keep how it was made; on disk when this returns."""
        state: MessageState = "done"
        if event.finish == "failed":
            state = "failed"
        elif event.finish == "cancelled":
            state = "stopped"
        stats = event.stats
        with self._db.transaction(Durability.FULL) as connection:
            self._fold(event.message_id)
            connection.execute(
                "UPDATE message SET state=?, error=? WHERE id=?",
                (state, str(event.error) if event.error else "", event.message_id),
            )
            if not self._has_message(event.message_id) or not event.model_fp:
                return
            connection.execute(
                "INSERT OR REPLACE INTO generation VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(event.message_id, event.model_fp, stats.n_prompt, stats.n_reused, stats.n_computed),
                    *(stats.n_generated, event.token_ids, event.finish, stats.prefill_ms, stats.gen_ms),
                ),
            )
            session_id = self._session_id(event.chat_id, event.model_fp)
            connection.execute(
                "UPDATE session SET leaf_id=?, n_used=?, n_ctx=?, used_at=? WHERE id=?",
                (event.message_id, event.n_used, event.n_ctx, time.time(), session_id),
            )
            connection.execute("DELETE FROM span WHERE session_id=?", (session_id,))
            connection.executemany(
                "INSERT INTO span SELECT ?, id, 'out' FROM message WHERE id=?",
                [(session_id, message_id) for message_id in sorted(event.out_ids)],
            )

    def keep_session(self, event: SessionSaved) -> None:
        """Note the file that holds a chat's memory."""
        with self._db.transaction(Durability.NORMAL) as connection:
            if connection.execute("SELECT 1 FROM chat WHERE id=?", (event.chat_id,)).fetchone() is None:
                return
            connection.execute(
                "UPDATE session SET leaf_id=?, file=?, n_used=?, bytes=? WHERE id=?",
                (
                    *(event.message_id, event.file, event.n_tokens, event.n_bytes),
                    self._session_id(event.chat_id, event.model_fp),
                ),
            )

    def content(self, chat_id: int) -> ChatContent | None:
        """Return a chat with the messages of its branch, None where there is no such chat."""
        connection = self._db.connection
        row = connection.execute(f"SELECT {_CHAT} FROM chat WHERE id=? AND deleted_at IS NULL", (chat_id,)).fetchone()
        if row is None:
            return None
        chat = _chat_record(row)
        messages = tuple(self._message(row) for row in connection.execute(_BRANCH, (chat.leaf_id,)))
        session = connection.execute(
            "SELECT id, n_used, n_ctx FROM session WHERE chat_id=? ORDER BY used_at DESC LIMIT 1", (chat_id,)
        ).fetchone()
        if session is None:
            return ChatContent(chat, messages)
        out = connection.execute("SELECT message_id FROM span WHERE session_id=? AND place='out'", (session[0],))
        return ChatContent(chat, messages, frozenset(int(row[0]) for row in out), int(session[1]), int(session[2]))

    def set_draft(self, chat_id: int | None, text: str) -> None:
        """Keep what stands in the composer."""
        with self._db.transaction(Durability.NORMAL) as connection:
            if chat_id is None:
                connection.execute("INSERT OR REPLACE INTO meta VALUES('draft', ?)", (text,))
            else:
                connection.execute("UPDATE chat SET draft=? WHERE id=?", (text, chat_id))

    def draft(self) -> str:
        """Return what stood in the composer of a chat without messages."""
        row = self._db.connection.execute("SELECT value FROM meta WHERE key='draft'").fetchone()
        return str(row[0]) if row else ""

    def rename(self, chat_id: int, title: str) -> None:
        """Give a chat another title."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET title=? WHERE id=?", (title, chat_id))

    def mark_read(self, chat_id: int, is_unread: bool) -> None:
        """Note whether the chat's last reply was seen."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET unread=? WHERE id=?", (is_unread, chat_id))

    def delete(self, chat_id: int) -> None:
        """Move a chat to the bin."""
        with self._db.transaction(Durability.FULL) as connection:
            connection.execute("UPDATE chat SET deleted_at=? WHERE id=?", (time.time(), chat_id))

    def undo_delete(self) -> ChatRecord | None:
        """Take the chat deleted last out of the bin and return it."""
        with self._db.transaction(Durability.FULL) as connection:
            row = connection.execute(
                f"SELECT {_CHAT} FROM chat WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC, id DESC LIMIT 1"
            ).fetchone()
            if row is None:
                return None
            connection.execute("UPDATE chat SET deleted_at=NULL WHERE id=?", (row[0],))
        return _chat_record(row)

    def empty_bin(self, now: float, sessions: Path) -> None:
        """Delete for good what has lain in the bin too long, session files included."""
        query = "SELECT id FROM chat WHERE deleted_at < ?"
        old = [int(row[0]) for row in self._db.connection.execute(query, (now - BIN_DAYS * 86_400,))]
        if old:
            with self._db.transaction(Durability.FULL) as connection:
                connection.executemany("DELETE FROM chat WHERE id=?", [(chat_id,) for chat_id in old])
        for chat_id in old:
            for file in sessions.glob(f"{chat_id}.*"):
                file.unlink(missing_ok=True)

    def _message(self, row: sqlite3.Row) -> MessageRecord:
        text = row["text"]
        if row["state"] == "streaming":
            text += self._chunks(row["id"])
        n_generated, gen_ms = row["n_generated"] or 0, row["gen_ms"] or 0.0
        return MessageRecord(
            id=row["id"],
            chat_id=row["chat_id"],
            parent_id=row["parent_id"],
            role=row["role"],
            text=text,
            state=row["state"],
            is_pinned=bool(row["pinned"]),
            error=row["error"],
            token_ids=row["token_ids"] or b"",
            model_fp=row["model_fp"] or "",
            n_generated=n_generated,
            tok_s=1000 * n_generated / gen_ms if gen_ms > 0 else 0.0,
        )

    def _chunks(self, message_id: int) -> str:
        rows = self._db.connection.execute("SELECT text FROM chunk WHERE message_id=? ORDER BY seq", (message_id,))
        return "".join(str(row[0]) for row in rows)

    def _fold(self, message_id: int) -> None:
        text = self._chunks(message_id)
        if text:
            self._db.connection.execute("UPDATE message SET text=text || ? WHERE id=?", (text, message_id))
            self._db.connection.execute("DELETE FROM chunk WHERE message_id=?", (message_id,))

    def _set_state(self, message_id: int, state: MessageState) -> None:
        self._db.connection.execute("UPDATE message SET state=? WHERE id=?", (state, message_id))

    def _has_message(self, message_id: int) -> bool:
        query = "SELECT 1 FROM message WHERE id=?"
        return self._db.connection.execute(query, (message_id,)).fetchone() is not None

    def _session_id(self, chat_id: int, model_fp: str) -> int:
        connection = self._db.connection
        connection.execute(
            "INSERT INTO session(chat_id, model_fp, used_at) VALUES(?, ?, ?) ON CONFLICT DO NOTHING",
            (chat_id, model_fp, time.time()),
        )
        query = "SELECT id FROM session WHERE chat_id=? AND model_fp=?"
        return int(connection.execute(query, (chat_id, model_fp)).fetchone()[0])


def _chat_record(row: sqlite3.Row) -> ChatRecord:
    return ChatRecord(
        id=row["id"],
        title=row["title"],
        used_at=row["used_at"],
        leaf_id=row["leaf_id"],
        frozen=row["frozen"],
        model_ref=row["model_ref"],
        n_ctx=row["n_ctx"],
        draft=row["draft"],
        is_unread=bool(row["unread"]),
        is_pinned=bool(row["pinned"]),
    )
