"""What the database knows of each chat's memory: its file, how full it is, and which messages are out of it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from app.bridge.messages import ReplyFinished, SessionSaved
from app.storage.database import Database, Durability


class SessionTable:
    """The books of the session files; each chat has one for each model that answered in it.

    Thread: the thread of the database.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def keep(self, event: SessionSaved) -> None:
        """Note the file that holds a chat's memory."""
        with self._db.transaction(Durability.NORMAL) as connection:
            if connection.execute("SELECT 1 FROM chat WHERE id=?", (event.chat_id,)).fetchone() is None:
                return
            connection.execute(
                "UPDATE session SET leaf_id=?, file=?, n_used=?, bytes=? WHERE id=?",
                (
                    *(event.message_id, event.file, event.n_tokens, event.n_bytes),
                    self._id_of(event.chat_id, event.model_fp),
                ),
            )

    def pin(self, file: str, is_pinned: bool) -> None:
        """Keep a session file whatever the budget says, or do so no longer."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("UPDATE session SET pinned=? WHERE file=?", (is_pinned, file))

    def pinned(self) -> frozenset[str]:
        """Return the names of the session files to be kept."""
        rows = self._db.connection.execute("SELECT file FROM session WHERE pinned AND file != ''")
        return frozenset(str(row[0]) for row in rows)

    def finish_reply(self, event: ReplyFinished) -> None:
        """Note how full the memory is and who is out of it. Inside a transaction."""
        connection = self._db.connection
        session_id = self._id_of(event.chat_id, event.model_fp)
        connection.execute(
            "UPDATE session SET leaf_id=?, n_used=?, n_ctx=?, used_at=? WHERE id=?",
            (event.message_id, event.n_used, event.n_ctx, time.time(), session_id),
        )
        connection.execute("DELETE FROM span WHERE session_id=?", (session_id,))
        connection.executemany(
            "INSERT INTO span SELECT ?, id, 'out' FROM message WHERE id=?",
            [(session_id, message_id) for message_id in sorted(event.out_ids)],
        )

    def state_of(self, chat_id: int) -> tuple[frozenset[int], int, int]:
        """Return (messages out of the context, n_used, n_ctx) of the memory used last; nothing and zeros for none."""
        row = self._db.connection.execute(
            "SELECT id, n_used, n_ctx FROM session WHERE chat_id=? ORDER BY used_at DESC LIMIT 1", (chat_id,)
        ).fetchone()
        if row is None:
            return frozenset(), 0, 0
        out = self._db.connection.execute("SELECT message_id FROM span WHERE session_id=? AND place='out'", (row[0],))
        return frozenset(int(message[0]) for message in out), int(row[1]), int(row[2])

    def fork(self, message_id: int, chat_id: int, new_of: Mapping[int, int]) -> None:
        """Give a forked chat the marks of the chat that a message is of. Inside a transaction.

        Args:
            new_of: the copies of the messages.
        """
        connection = self._db.connection
        old = connection.execute(
            "SELECT s.id, s.model_fp FROM session s JOIN message m ON m.chat_id = s.chat_id WHERE m.id=? "
            "ORDER BY s.used_at DESC LIMIT 1",
            (message_id,),
        ).fetchone()
        if old is None:
            return
        session_id = self._id_of(chat_id, old["model_fp"])
        out = connection.execute("SELECT message_id FROM span WHERE session_id=? AND place='out'", (old["id"],))
        copies = [(session_id, new_of[int(row[0])]) for row in out.fetchall() if int(row[0]) in new_of]
        connection.executemany("INSERT INTO span VALUES(?, ?, 'out')", copies)

    def _id_of(self, chat_id: int, model_fp: str) -> int:
        connection = self._db.connection
        connection.execute(
            "INSERT INTO session(chat_id, model_fp, used_at) VALUES(?, ?, ?) ON CONFLICT DO NOTHING",
            (chat_id, model_fp, time.time()),
        )
        query = "SELECT id FROM session WHERE chat_id=? AND model_fp=?"
        return int(connection.execute(query, (chat_id, model_fp)).fetchone()[0])
