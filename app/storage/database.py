"""The SQLite file itself: opening, what to do with a damaged one, transactions, backups.

Knows nothing of chats; `app.storage.chats` does. All of it belongs to the storage thread.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from app.storage.migrations import MIGRATIONS, SCHEMA

FILE_NAME = "causerie.db"
BACKUP_FOLDER = "backups"
N_BACKUPS = 3
BACKUP_EVERY_S = 86_400.0

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class Durability(Enum):
    """What a commit survives: FULL a loss of power, NORMAL the end of the process."""

    FULL = "FULL"
    NORMAL = "NORMAL"


class Database:
    """The one connection that writes.

    Attributes:
        connection: in autocommit; writes go through `transaction`.
        notice: what happened at opening, a sentence for a person; empty where nothing did.
        is_readonly: the file is of a later program and is only read.

    Thread: the thread that opened it.
    """

    def __init__(self, connection: sqlite3.Connection, folder: Path, notice: str = "") -> None:
        self.connection = connection
        self.folder = folder
        self.notice = notice
        self.is_readonly = False
        self._durability: Durability | None = None

    @classmethod
    def open(cls, folder: Path) -> Database:
        """Open the folder's database, make it where there is none, and bring it to the schema of today.

        A damaged file is kept under another name and the newest sound backup takes its place.

        Raises: sqlite3.Error, OSError: where the folder cannot be written to or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        try:
            database = cls(_connect(path), folder)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            notice = _replace_damaged(path)
            database = cls(_connect(path), folder, notice)
        database._migrate()
        return database

    @classmethod
    def in_memory(cls, folder: Path) -> Database:
        """Open a database that is gone with the program, for a folder that cannot be used."""
        database = cls(_connect(":memory:"), folder)
        database._migrate()
        return database

    @contextlib.contextmanager
    def transaction(self, durability: Durability) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; an exception undoes it."""
        if durability is not self._durability:
            self.connection.execute(f"PRAGMA synchronous={durability.value}")
            self._durability = durability
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
            self.connection.execute("COMMIT")
        except BaseException:
            # A full disk may have rolled back already.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def backup_if_due(self, now: float) -> None:
        """Keep a copy of the file unless the newest one is younger than a day; the oldest beyond three go."""
        backups = _backups(self.folder)
        if backups and now - backups[0].stat().st_mtime < BACKUP_EVERY_S:
            return
        self._backup(now)

    def close(self) -> None:
        """Close the connection; what was committed stays."""
        self.connection.close()

    def _backup(self, now: float) -> None:
        folder = self.folder / BACKUP_FOLDER
        folder.mkdir(exist_ok=True)
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        target, partial = folder / f"causerie-{stamp}.db", folder / "partial.db"
        with contextlib.closing(sqlite3.connect(partial)) as copy:
            self.connection.backup(copy)
        os.replace(partial, target)
        for old in _backups(self.folder)[N_BACKUPS:]:
            old.unlink(missing_ok=True)

    def _migrate(self) -> None:
        connection = self.connection
        connection.execute("CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        row = connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
        schema = int(row[0]) if row else 0
        if schema > SCHEMA:
            self.is_readonly = True
            connection.execute("PRAGMA query_only=ON")
            self.notice = "These chats were written by a later version of Causerie: they can be read, not changed."
            return
        if 0 < schema < SCHEMA:
            self._backup(time.time())
        for step in range(schema, SCHEMA):
            with self.transaction(Durability.FULL):
                for statement in MIGRATIONS[step]:
                    connection.execute(statement)
                connection.execute("INSERT OR REPLACE INTO meta VALUES('schema', ?)", (str(step + 1),))


def is_damage(error: sqlite3.Error) -> bool:
    """Whether an error says that the file itself is broken."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(code, int) and (code & 0xFF) in _DAMAGED


def _connect(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA foreign_keys=ON")
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            error = sqlite3.DatabaseError(str(found))
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
    except BaseException:
        connection.close()
        raise
    return connection


def _replace_damaged(path: Path) -> str:
    """Rename the damaged file, put the newest sound backup in its place and say so."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"causerie.damaged-{stamp}.db")
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            os.replace(part, aside.with_name(aside.name + suffix))
    for backup in _backups(path.parent):
        try:
            with contextlib.closing(_connect(backup)) as source, contextlib.closing(sqlite3.connect(path)) as target:
                source.backup(target)
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            continue
        day = time.strftime("%Y-%m-%d", time.localtime(backup.stat().st_mtime))
        return f"The file of your chats was damaged: the backup of {day} is shown, the damaged file is kept as {aside.name}."
    return f"The file of your chats was damaged and there is no backup yet: it is kept as {aside.name}."


def _backups(folder: Path) -> list[Path]:
    """Return the backups, newest first."""
    return sorted((folder / BACKUP_FOLDER).glob("causerie-*.db"), reverse=True)
