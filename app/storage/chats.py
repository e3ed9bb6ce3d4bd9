"""Chats and messages in the database: every statement that the program runs on them."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

from app.bridge.messages import Overflow, ReplyFinished, ReplyRecord
from app.storage.database import Database, Durability
from app.storage.records import AddMessages, ChatContent, ChatRecord, ForkChat, MessageRecord, MessageState
from app.storage.session_table import SessionTable

CHAT_COLUMNS = "id, title, used_at, leaf_id, frozen, model_ref, n_ctx, draft, unread, pinned, overflow, sampling"

_BRANCH = """
WITH RECURSIVE branch(id, depth) AS (
    SELECT ?, 0 UNION ALL
    SELECT m.parent_id, depth + 1 FROM branch JOIN message m ON m.id = branch.id WHERE m.parent_id IS NOT NULL
)
SELECT m.id, m.chat_id, m.parent_id, m.role, m.text, m.state, m.pinned, m.error,
       g.token_ids, g.model_fp, g.n_generated, g.gen_ms, g.template_hash, g.params, g.engine, g.isa, g.context_hash
FROM branch JOIN message m ON m.id = branch.id LEFT JOIN generation g ON g.message_id = m.id
ORDER BY depth DESC"""


class ChatStore:
    """What is done with chats, on one open database.

    Thread: the thread of the database.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SessionTable(database)

    def chats(self) -> tuple[ChatRecord, ...]:
        """Return the chats that are not in the bin, the one used last first."""
        rows = self._db.connection.execute(
            f"SELECT {CHAT_COLUMNS} FROM chat WHERE deleted_at IS NULL ORDER BY used_at DESC, id DESC"
        )
        return tuple(chat_record(row) for row in rows)

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
            self._put_chat(chat)
            connection.executemany(
                "INSERT INTO message(id, chat_id, parent_id, role, text, state, pinned, error, created_at) "
                "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (m.id, m.chat_id, m.parent_id, m.role, m.text, m.state, m.is_pinned, m.error, chat.used_at)
                    for m in request.messages
                ],
            )

    def fork(self, request: ForkChat) -> None:
        """Make a chat of the branch up to a message, with copies of its messages and their marks."""
        chat = request.chat
        with self._db.transaction(Durability.FULL) as connection:
            self._put_chat(chat)
            old_ids = [int(row["id"]) for row in connection.execute(_BRANCH, (request.message_id,))]
            new_of = {old: request.first_id + i for i, old in enumerate(old_ids)}
            for i, (old, new) in enumerate(new_of.items()):
                connection.execute(
                    "INSERT INTO message(id, chat_id, parent_id, role, text, state, pinned, error, created_at) "
                    "SELECT ?, ?, ?, role, text, state, pinned, error, created_at FROM message WHERE id=?",
                    (new, chat.id, new - 1 if i else None, old),
                )
                connection.execute(
                    "INSERT INTO generation SELECT ?, model_fp, n_prompt, n_reused, n_computed, n_generated, token_ids, "
                    "finish, prefill_ms, gen_ms, template_hash, params, engine, isa, context_hash "
                    "FROM generation WHERE message_id=?",
                    (new, old),
                )
            connection.execute("UPDATE chat SET leaf_id=? WHERE id=?", (new_of[request.message_id], chat.id))
            self._sessions.fork(request.message_id, chat.id, new_of)

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
                "INSERT OR REPLACE INTO generation(message_id, model_fp, n_prompt, n_reused, n_computed, n_generated, "
                "token_ids, finish, prefill_ms, gen_ms, template_hash, params, engine, isa, context_hash) "
                "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(event.message_id, event.model_fp, stats.n_prompt, stats.n_reused, stats.n_computed),
                    *(stats.n_generated, event.token_ids, event.finish, stats.prefill_ms, stats.gen_ms),
                    *(event.record.template_hash, event.record.params, event.record.engine, event.record.isa),
                    event.record.context_hash,
                ),
            )
            self._sessions.finish_reply(event)

    def content(self, chat_id: int) -> ChatContent | None:
        """Return a chat with the messages of its branch, None where there is no such chat."""
        chat = self.chat(chat_id)
        if chat is None:
            return None
        siblings = self._siblings(chat_id)
        rows = self._db.connection.execute(_BRANCH, (chat.leaf_id,))
        messages = tuple(self._message(row, siblings[row["parent_id"]]) for row in rows)
        return ChatContent(chat, messages, *self._sessions.state_of(chat_id))

    def show_branch(self, chat_id: int, message_id: int) -> None:
        """Make the branch through a message the one that is shown, down to its newest leaf."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET leaf_id=? WHERE id=?", (self.newest_leaf(message_id), chat_id))

    def newest_leaf(self, message_id: int) -> int:
        """Return the last message of the branch below a message that always follows the newest child."""
        row = self._db.connection.execute(
            "WITH RECURSIVE down(id) AS (SELECT ? UNION ALL "
            "SELECT (SELECT max(m.id) FROM message m WHERE m.parent_id = down.id AND m.deleted_at IS NULL) FROM down "
            "WHERE down.id IS NOT NULL) SELECT max(id) FROM down",
            (message_id,),
        ).fetchone()
        return int(row[0])

    def leaf_without(self, chat_id: int, message_id: int) -> int | None:
        """Return the leaf to show once a message is gone: below its newest sibling, else its parent."""
        row = self._db.connection.execute(
            "SELECT m.parent_id, (SELECT max(s.id) FROM message s WHERE s.chat_id = m.chat_id "
            "AND s.parent_id IS m.parent_id AND s.id != m.id AND s.deleted_at IS NULL) AS sibling "
            "FROM message m WHERE m.id=? AND m.chat_id=?",
            (message_id, chat_id),
        ).fetchone()
        if row is None:
            return None
        parent_id: int | None = row["parent_id"]
        return parent_id if row["sibling"] is None else self.newest_leaf(row["sibling"])

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

    def chat(self, chat_id: int) -> ChatRecord | None:
        """Return a chat that is not in the bin, None where there is none."""
        row = self._db.connection.execute(
            f"SELECT {CHAT_COLUMNS} FROM chat WHERE id=? AND deleted_at IS NULL", (chat_id,)
        ).fetchone()
        return chat_record(row) if row else None

    def rename(self, chat_id: int, title: str) -> None:
        """Give a chat another title."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET title=? WHERE id=?", (title, chat_id))

    def set_overflow(self, chat_id: int, overflow: Overflow) -> None:
        """Note what happens when a chat's context is full."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET overflow=? WHERE id=?", (overflow, chat_id))

    def pin_message(self, message_id: int, is_pinned: bool) -> None:
        """Let a message never leave the context, or let it leave again."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE message SET pinned=? WHERE id=?", (is_pinned, message_id))

    def mark_read(self, chat_id: int, is_unread: bool) -> None:
        """Note whether the chat's last reply was seen."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE chat SET unread=? WHERE id=?", (is_unread, chat_id))

    def _put_chat(self, chat: ChatRecord) -> None:
        """Make a chat, or change it where it is there. Inside a transaction."""
        self._db.connection.execute(
            f"INSERT INTO chat({CHAT_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT(id) DO UPDATE SET "
            "title=excluded.title, used_at=excluded.used_at, leaf_id=excluded.leaf_id, frozen=excluded.frozen, "
            "model_ref=excluded.model_ref, n_ctx=excluded.n_ctx, draft=excluded.draft, unread=excluded.unread, "
            "overflow=excluded.overflow, sampling=excluded.sampling",
            (
                *(chat.id, chat.title, chat.used_at, chat.leaf_id, chat.frozen, chat.model_ref, chat.n_ctx),
                *(chat.draft, chat.is_unread, chat.is_pinned, chat.overflow, chat.sampling),
            ),
        )

    def _siblings(self, chat_id: int) -> dict[int | None, list[int]]:
        """Return the children of each message of a chat, oldest first; those of None are its roots."""
        children: dict[int | None, list[int]] = defaultdict(list)
        query = "SELECT id, parent_id FROM message WHERE chat_id=? AND deleted_at IS NULL ORDER BY id"
        for row in self._db.connection.execute(query, (chat_id,)):
            children[row["parent_id"]].append(row["id"])
        return children

    def _message(self, row: sqlite3.Row, siblings: list[int]) -> MessageRecord:
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
            record=ReplyRecord(
                *(row["template_hash"] or "", row["params"] or "", row["engine"] or "", row["isa"] or ""),
                row["context_hash"] or "",
            ),
            siblings=tuple(siblings) if len(siblings) > 1 else (),
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


def chat_record(row: sqlite3.Row) -> ChatRecord:
    """Return a chat of a row of `CHAT_COLUMNS`."""
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
        overflow=row["overflow"] if row["overflow"] in ("stop", "summarise") else "shift",
        sampling=row["sampling"],
    )
