"""Full-text search over all messages.

The index follows the messages when it is asked, not when they are written: text is never at risk from it, and streaming
never waits for it. SQLite's tokenizer takes a run of Chinese, Japanese or Korean for one word, so such runs are indexed
as pairs of characters in a column of their own.
"""

from __future__ import annotations

import re
import sqlite3

from app.storage.database import Database, Durability

_CJK = "\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_CJK_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(f"[^\\W{_CJK}]+")
_BATCH = 500
"""Messages that are indexed in one transaction."""


def cjk_words(text: str) -> str:
    """Return the pairs of neighbours in each run of CJK characters, and each run's last character alone."""
    runs = _CJK_RUN.findall(text)
    return " ".join(run[i : i + 2] for run in runs for i in range(len(run)))


def query_of(text: str) -> str:
    """Return an FTS5 query for messages that have all words of a text, each also as a beginning; "" for none."""
    terms = [f'text : "{word}" *' for word in _WORD.findall(text)]
    for run in _CJK_RUN.findall(text):
        pairs = [run[i : i + 2] for i in range(len(run) - 1)]
        terms.append(f'cjk : "{" ".join(pairs)}"' if pairs else f'cjk : "{run}" *')
    return " AND ".join(terms)


class MessageIndex:
    """The full-text index of one database.

    Thread: the thread of the database.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def chats_with(self, text: str) -> frozenset[int]:
        """Return the chats, not in the bin, that have a message with all words of a text."""
        query = query_of(text)
        if not query:
            return frozenset()
        try:
            return self._find(query)
        except sqlite3.DatabaseError:
            if self._db.is_readonly:
                raise
            self._rebuild()
            return self._find(query)

    def _find(self, query: str) -> frozenset[int]:
        if not self._db.is_readonly:
            self._catch_up()
        rows = self._db.connection.execute(
            "SELECT DISTINCT m.chat_id FROM message_fts f JOIN message m ON m.id = f.rowid "
            "JOIN chat c ON c.id = m.chat_id "
            "WHERE message_fts MATCH ? AND m.deleted_at IS NULL AND c.deleted_at IS NULL",
            (query,),
        )
        return frozenset(int(row[0]) for row in rows)

    def _catch_up(self) -> None:
        """Index what was written since the last search; a reply that still grows waits."""
        query = (
            "SELECT id, text FROM message WHERE indexed=0 AND state NOT IN ('queued', 'streaming') "
            f"ORDER BY id LIMIT {_BATCH}"
        )
        while rows := self._db.connection.execute(query).fetchall():
            with self._db.transaction(Durability.NORMAL) as connection:
                connection.executemany(
                    "INSERT OR REPLACE INTO message_fts(rowid, text, cjk) VALUES(?, ?, ?)",
                    [(row["id"], row["text"], cjk_words(row["text"])) for row in rows],
                )
                connection.executemany("UPDATE message SET indexed=1 WHERE id=?", [(row["id"],) for row in rows])

    def _rebuild(self) -> None:
        """Make the index anew: a damaged one costs time, no text."""
        with self._db.transaction(Durability.NORMAL) as connection:
            connection.execute("DROP TABLE IF EXISTS message_fts")
            connection.execute("CREATE VIRTUAL TABLE message_fts USING fts5(text, cjk)")
            connection.execute("UPDATE message SET indexed=0")
