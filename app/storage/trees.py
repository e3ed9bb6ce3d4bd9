"""A chat with all its messages, every branch of them: what is exported, imported and kept whole."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from app.bridge.messages import ReplyRecord
from app.storage.chats import CHAT_COLUMNS, chat_record
from app.storage.database import Database, Durability
from app.storage.records import ChatTree, Generation, MessageRecord, TreeMessage

_MESSAGES = """
SELECT m.id, m.chat_id, m.parent_id, m.role, m.state, m.pinned, m.error, m.created_at,
       m.text || coalesce((SELECT group_concat(text, '') FROM
           (SELECT text FROM chunk WHERE message_id = m.id ORDER BY seq)), '') AS text,
       g.message_id, g.model_fp, g.n_prompt, g.n_reused, g.n_computed, g.n_generated, g.token_ids, g.finish,
       g.prefill_ms, g.gen_ms, g.template_hash, g.params, g.engine, g.isa, g.context_hash
FROM message m LEFT JOIN generation g ON g.message_id = m.id
WHERE m.chat_id = ? AND m.deleted_at IS NULL ORDER BY m.id"""


def moved(tree: ChatTree, first_id: int) -> ChatTree:
    """Return the tree with other numbers: the chat gets `first_id`, its messages those that follow, in their order."""
    new_of = {m.record.id: first_id + 1 + i for i, m in enumerate(tree.messages)}
    messages = []
    for message in tree.messages:
        old = message.record
        parent_id = None if old.parent_id is None else new_of[old.parent_id]
        record = replace(old, id=new_of[old.id], chat_id=first_id, parent_id=parent_id, siblings=())
        messages.append(replace(message, record=record))
    leaf_id = None if tree.chat.leaf_id is None else new_of[tree.chat.leaf_id]
    return ChatTree(replace(tree.chat, id=first_id, leaf_id=leaf_id), tuple(messages))


@dataclass(frozen=True, slots=True)
class TreeTable:
    """Whole chats in one open database.

    Thread: the thread of the database.
    """

    database: Database

    def read(self, chat_ids: tuple[int, ...]) -> tuple[ChatTree, ...]:
        """Return these chats, or all that are not in the bin where none is named, the one used last first."""
        rows = self.database.connection.execute(
            f"SELECT {CHAT_COLUMNS} FROM chat WHERE deleted_at IS NULL ORDER BY used_at DESC, id DESC"
        ).fetchall()
        return tuple(self._tree(row) for row in rows if not chat_ids or row["id"] in chat_ids)

    def write(self, trees: tuple[ChatTree, ...]) -> None:
        """Keep chats that are not there yet, with their messages; on disk, all of them, when this returns."""
        with self.database.transaction(Durability.FULL) as connection:
            for chat in (tree.chat for tree in trees):
                connection.execute(
                    f"INSERT INTO chat({CHAT_COLUMNS}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        *(chat.id, chat.title, chat.used_at, chat.leaf_id, chat.frozen, chat.model_ref, chat.n_ctx),
                        *(chat.draft, chat.is_unread, chat.is_pinned, chat.overflow, chat.sampling),
                    ),
                )
            for message in (message for tree in trees for message in tree.messages):
                self._write(connection, message)

    def _tree(self, row: sqlite3.Row) -> ChatTree:
        chat = replace(chat_record(row), is_unread=False)
        messages = tuple(_message(found) for found in self.database.connection.execute(_MESSAGES, (chat.id,)))
        return ChatTree(chat, messages)

    def _write(self, connection: sqlite3.Connection, message: TreeMessage) -> None:
        m, made = message.record, message.generation
        connection.execute(
            "INSERT INTO message(id, chat_id, parent_id, role, text, state, pinned, error, created_at) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (m.id, m.chat_id, m.parent_id, m.role, m.text, m.state, m.is_pinned, m.error, message.created_at),
        )
        if made is not None:
            connection.execute(
                "INSERT INTO generation(message_id, model_fp, n_prompt, n_reused, n_computed, n_generated, token_ids, "
                "finish, prefill_ms, gen_ms, template_hash, params, engine, isa, context_hash) "
                "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(m.id, m.model_fp, made.n_prompt, made.n_reused, made.n_computed, m.n_generated, m.token_ids),
                    *(made.finish, made.prefill_ms, made.gen_ms),
                    *(m.record.template_hash, m.record.params, m.record.engine, m.record.isa, m.record.context_hash),
                ),
            )


def _message(row: sqlite3.Row) -> TreeMessage:
    base = MessageRecord(
        *(row["id"], row["chat_id"], row["parent_id"], row["role"], row["text"]),
        state="interrupted" if row["state"] in ("queued", "streaming") else row["state"],
        is_pinned=bool(row["pinned"]),
        error=row["error"],
    )
    if row["message_id"] is None:
        return TreeMessage(base, row["created_at"])
    made = Generation(
        *(row["n_prompt"], row["n_reused"], row["n_computed"], row["finish"], row["prefill_ms"], row["gen_ms"])
    )
    record = replace(
        base,
        token_ids=row["token_ids"],
        model_fp=row["model_fp"],
        n_generated=row["n_generated"],
        record=ReplyRecord(row["template_hash"], row["params"], row["engine"], row["isa"], row["context_hash"]),
    )
    return TreeMessage(record, row["created_at"], made)
