"""The SQLite file itself: opening, what to do with a damaged or a later one, transactions, backups.

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
from app.storage.salvage import salvage

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

        A damaged file is kept under another name; what can be read of it joins the newest sound backup. A file of a
        later program is opened for reading only, and not a byte of it changes.

        Raises: sqlite3.Error, OSError: where the folder cannot be written to or the disk is full.
        """
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE_NAME
        try:
            if _schema_of(path) > SCHEMA:
                return cls._open_later(path)
            database = cls(_connect(path), folder)
            database._migrate()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return cls._open_damaged(path)
        return database

    @classmethod
    def _open_later(cls, path: Path) -> Database:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection.row_factory = sqlite3.Row
        notice = "These chats were written by a later version of Causerie: they can be read, not changed."
        database = cls(connection, path.parent, notice)
        database.is_readonly = True
        return database

    @classmethod
    def _open_damaged(cls, path: Path) -> Database:
        aside = _set_aside(path)
        day = _restore_backup(path)
        database = cls(_connect(path), path.parent)
        database._migrate()
        n_messages = salvage(aside, database.connection)
        database.notice = _damage_notice(day, n_messages, aside.name)
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
        schema = _schema(connection)
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


def _schema(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
    return int(row[0]) if row else 0


def _schema_of(path: Path) -> int:
    """Return the schema of a file, 0 where there is none; a file that was closed in order does not change by it."""
    if not path.exists() or path.stat().st_size == 0:
        return 0
    for mode in ("ro", "rw"):
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True)) as connection:
            try:
                has_meta = connection.execute("SELECT 1 FROM sqlite_master WHERE name='meta'").fetchone()
                return _schema(connection) if has_meta else 0
            except sqlite3.OperationalError as error:
                # A journal that a kill left behind is rolled back first, which is a change.
                if mode == "rw" or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
    return 0


def _set_aside(path: Path) -> Path:
    """Rename the damaged file and its log; returns its new path."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"causerie.damaged-{stamp}.db")
    for suffix in ("", "-wal"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            os.replace(part, aside.with_name(aside.name + suffix))
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    return aside


def _restore_backup(path: Path) -> str:
    """Put the newest sound backup in a file's place; returns its day, "" where there is none."""
    for backup in _backups(path.parent):
        try:
            with contextlib.closing(_connect(backup)) as source, contextlib.closing(sqlite3.connect(path)) as target:
                if _schema(source) > SCHEMA:
                    continue
                source.backup(target)
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)
            continue
        return time.strftime("%Y-%m-%d", time.localtime(backup.stat().st_mtime))
    return ""


def _damage_notice(day: str, n_messages: int, name: str) -> str:
    if day and n_messages:
        found = f"{n_messages:,} messages could be read from it, the backup of {day} gave the rest"
    elif n_messages:
        found = f"{n_messages:,} messages could be read from it, and there is no backup yet"
    elif day:
        found = f"the backup of {day} is shown"
    else:
        found = "nothing of it could be read, and there is no backup yet"
    return f"The file of your chats was damaged: {found}. The damaged file is kept as {name}."


def _backups(folder: Path) -> list[Path]:
    """Return the backups, newest first."""
    return sorted((folder / BACKUP_FOLDER).glob("causerie-*.db"), reverse=True)
