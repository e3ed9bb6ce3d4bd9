"""The bin: what was deleted can be brought back, in the opposite order, for thirty days and across restarts."""

from __future__ import annotations

import time
from pathlib import Path

from app.storage.database import Database, Durability

BIN_DAYS = 30
"""Days that something deleted can be brought back."""


class Bin:
    """Deleted chats and messages of one database.

    Thread: the thread of the database.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def n_undo(self) -> int:
        """Return how many deletions can be undone."""
        return int(self._db.connection.execute("SELECT count(*) FROM undo").fetchone()[0])

    def delete_chat(self, chat_id: int) -> None:
        """Move a chat to the bin."""
        now = time.time()
        with self._db.transaction(Durability.FULL) as connection:
            connection.execute("UPDATE chat SET deleted_at=? WHERE id=?", (now, chat_id))
            connection.execute(
                "INSERT INTO undo(chat_id, leaf_id, at) SELECT id, leaf_id, ? FROM chat WHERE id=?", (now, chat_id)
            )

    def delete_message(self, chat_id: int, message_id: int, leaf_id: int | None) -> None:
        """Move a message and all that follows it, on every branch, to the bin.

        Args:
            leaf_id: the chat's leaf from now on.
        """
        now = time.time()
        with self._db.transaction(Durability.FULL) as connection:
            connection.execute(
                "INSERT INTO undo(chat_id, message_id, leaf_id, at) SELECT id, ?, leaf_id, ? FROM chat WHERE id=?",
                (message_id, now, chat_id),
            )
            connection.execute(
                "WITH RECURSIVE gone(id) AS (SELECT ? UNION ALL SELECT m.id FROM gone JOIN message m "
                "ON m.parent_id = gone.id) UPDATE message SET deleted_at=? "
                "WHERE id IN (SELECT id FROM gone) AND deleted_at IS NULL",
                (message_id, now),
            )
            connection.execute("UPDATE chat SET leaf_id=? WHERE id=?", (leaf_id, chat_id))

    def undo(self) -> int | None:
        """Bring back what was deleted last; returns its chat, None where the bin is empty."""
        with self._db.transaction(Durability.FULL) as connection:
            row = connection.execute("SELECT * FROM undo ORDER BY id DESC LIMIT 1").fetchone()
            if row is None:
                return None
            if row["message_id"] is None:
                connection.execute("UPDATE chat SET deleted_at=NULL WHERE id=?", (row["chat_id"],))
            else:
                connection.execute(
                    "UPDATE message SET deleted_at=NULL WHERE chat_id=? AND deleted_at=?", (row["chat_id"], row["at"])
                )
                connection.execute("UPDATE chat SET leaf_id=? WHERE id=?", (row["leaf_id"], row["chat_id"]))
            connection.execute("DELETE FROM undo WHERE id=?", (row["id"],))
        return int(row["chat_id"])

    def empty(self, before: float, sessions: Path) -> None:
        """Delete for good what was deleted before a time, session files included."""
        connection = self._db.connection
        chats = [(int(row[0]),) for row in connection.execute("SELECT id FROM chat WHERE deleted_at < ?", (before,))]
        query = "SELECT id FROM message WHERE deleted_at < ? OR chat_id IN (SELECT id FROM chat WHERE deleted_at < ?) "
        # The newest first: no deletion runs down a long branch then, which SQLite follows a thousand levels at most.
        messages = [(int(row[0]),) for row in connection.execute(query + "ORDER BY id DESC", (before, before))]
        if not chats and not messages:
            return
        with self._db.transaction(Durability.FULL):
            connection.executemany("DELETE FROM message_fts WHERE rowid=?", messages)
            connection.executemany("DELETE FROM message WHERE id=?", messages)
            connection.executemany("DELETE FROM chat WHERE id=?", chats)
            connection.execute("DELETE FROM undo WHERE at < ?", (before,))
        for (chat_id,) in chats:
            for file in sessions.glob(f"{chat_id}.*"):
                file.unlink(missing_ok=True)
