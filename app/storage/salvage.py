"""Saves what can be read of a damaged database, row by row, into a sound one.

Last resort of `app.storage.database`: the target holds the newest backup, or nothing, and gets every row that the
damaged file still gives.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

_TABLES = ("chat", "message", "chunk", "generation", "undo")
"""Parents before their children. Session files only save time: their books are left."""

_MAX_SKIPS = 40
"""Gaps that are stepped over in one table, each twice as far as the one before."""


def salvage(damaged: Path, target: sqlite3.Connection) -> int:
    """Copy all readable rows.

    Args:
        damaged: the file, with its write-ahead log beside it; both stay as they are.
        target: a sound database of today's schema.

    Returns: the number of messages that were read.
    """
    copy = damaged.with_name("salvage.db")
    try:
        for suffix in ("", "-wal"):
            part = damaged.with_name(damaged.name + suffix)
            if part.exists():
                shutil.copyfile(part, copy.with_name(copy.name + suffix))
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as source:
            source.text_factory = _lenient_text
            return _copy_all(source, target)
    except sqlite3.DatabaseError:
        return 0
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


def _lenient_text(data: bytes) -> str:
    return data.decode(errors="replace")


def _copy_all(source: sqlite3.Connection, target: sqlite3.Connection) -> int:
    n_messages = 0
    target.execute("PRAGMA foreign_keys=OFF")
    target.execute("BEGIN IMMEDIATE")
    try:
        for table in _TABLES:
            with contextlib.suppress(sqlite3.DatabaseError):
                n = _copy_table(source, target, table)
                n_messages += n if table == "message" else 0
        _mend(target)
        target.execute("COMMIT")
    except BaseException:
        target.execute("ROLLBACK")
        raise
    finally:
        target.execute("PRAGMA foreign_keys=ON")
    return n_messages


def _copy_table(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> int:
    known = {str(row[1]) for row in target.execute(f"PRAGMA table_info({table})")}
    columns = [str(row[1]) for row in source.execute(f"PRAGMA table_info({table})") if str(row[1]) in known]
    statement = f"INSERT OR REPLACE INTO {table}({','.join(columns)}) VALUES({','.join('?' * len(columns))})"
    n_rows = 0
    for row in _rows(source, table, columns):
        # A row that breaks a rule of the table is no row that the program wrote.
        with contextlib.suppress(sqlite3.IntegrityError):
            target.execute(statement, row)
            n_rows += 1
    return n_rows


def _rows(source: sqlite3.Connection, table: str, columns: list[str]) -> Iterator[tuple[object, ...]]:
    """Yield the readable rows; what lies on a damaged page is stepped over."""
    key = "message_id" if table == "chunk" else "rowid"
    query = f"SELECT {key}, {','.join(columns)} FROM {table} NOT INDEXED WHERE {key} > ? ORDER BY {key}"
    last, skip = -1, 1
    for _ in range(_MAX_SKIPS):
        try:
            for row in source.execute(query, (last,)):
                last = row[0]
                yield tuple(row[1:])
            return
        except sqlite3.DatabaseError:
            last += skip
            skip *= 2


def _mend(target: sqlite3.Connection) -> None:
    """Make the rows fit each other again."""
    target.execute(
        "INSERT INTO chat(id, title, used_at) SELECT chat_id, '…', max(created_at) FROM message "
        "WHERE chat_id NOT IN (SELECT id FROM chat) GROUP BY chat_id"
    )
    target.execute("UPDATE message SET parent_id=NULL WHERE parent_id NOT IN (SELECT id FROM message)")
    target.execute(
        "UPDATE chat SET leaf_id=(SELECT max(id) FROM message WHERE chat_id=chat.id AND deleted_at IS NULL) "
        "WHERE leaf_id IS NULL OR leaf_id NOT IN (SELECT id FROM message WHERE chat_id=chat.id)"
    )
    for table in ("chunk", "generation"):
        target.execute(f"DELETE FROM {table} WHERE message_id NOT IN (SELECT id FROM message)")
    target.execute("DELETE FROM undo WHERE chat_id NOT IN (SELECT id FROM chat)")
    target.execute("UPDATE message SET indexed=0")
