"""Rounds of killing: start a child, kill it at a random moment, look at what it left behind.

`python -m tests.crash.rounds N_STORE N_PROGRAM` (`make crash`): so many times the store and the writers of files, and
the whole program.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from app.storage.chats import ChatStore
from app.storage.database import FILE_NAME, Database
from app.storage.migrations import MIGRATIONS, SCHEMA
from app.storage.records import ChatContent
from engine.session import Session
from tests.engine.oracle_cases import context
from tests.models import ROOT

LOST_AT_MOST_S = 0.25
PATIENCE_S = 60.0
DELAY_S = {"stream": 0.7, "session": 0.25, "pool": 0.4, "migrate": 0.06, "backup": 0.25, "program": 1.5}
"""A child lives at most so long after its first line."""

SHARES = {"stream": 20, "session": 20, "pool": 6, "migrate": 8, "backup": 6}


@dataclass
class Tally:
    """What was seen.

    Attributes:
        n_late: rounds in which text older than `LOST_AT_MOST_S` was lost, because a flush took longer.
    """

    rounds: Counter[str] = field(default_factory=Counter)
    n_late: int = 0
    n_saved: int = 0
    n_in_flight: int = 0


class Rounds:
    """A zygote and a folder for each scenario, whose state goes from round to round."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._rng = folder, random.Random(seed)
        self.tally = Tally()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "OPENBLAS_NUM_THREADS": "1"},
            text=True,
        )

    def close(self) -> None:
        """End the zygote."""
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(timeout=PATIENCE_S)
        self._zygote.stdout.close()

    def run(self, scenario: str) -> None:
        """One round."""
        folder = self._folder / scenario
        if scenario == "migrate":
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(exist_ok=True)
        if scenario == "migrate":
            make_old_database(folder)
        log = folder / "log"
        log.unlink(missing_ok=True)
        killed_at, status = self._kill(scenario, folder, log)
        assert status == signal.SIGKILL, f"{scenario}: the child ended by itself"
        lines = [json.loads(line) for line in log.read_bytes().splitlines() if line.endswith(b"}")]
        self.tally.rounds[scenario] += 1
        check = getattr(self, f"_check_{scenario}")
        check(folder, lines, killed_at)

    def _kill(self, scenario: str, folder: Path, log: Path) -> tuple[float, int]:
        zygote = self._zygote
        assert zygote.stdin is not None and zygote.stdout is not None
        zygote.stdin.write(json.dumps([scenario, str(folder), self._rng.randrange(1 << 30)]) + "\n")
        zygote.stdin.flush()
        child = int(zygote.stdout.readline())
        deadline = time.monotonic() + PATIENCE_S
        while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(self._rng.uniform(0, DELAY_S[scenario]))
        killed_at = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        return killed_at, int(zygote.stdout.readline())

    def _check_stream(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        self._check_text(folder, lines, killed_at)

    def _check_program(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        self._check_text(folder, lines, killed_at)
        check_sessions(folder / "sessions")

    def _check_pool(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        assert all(line.get("note", "") == "" for line in lines), [line for line in lines if line.get("note")]
        check_sessions(folder)

    def _check_session(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        """The file holds the last generation that was saved, or the one on its way."""
        marks = [line for line in lines if "saving" in line or "saved" in line or "deleting" in line]
        path = folder / "chat.kv"
        if not path.exists():
            assert not marks or "saved" not in marks[-1]
            return
        again = Session(context("llama", n_ctx=128, n_ubatch=32))
        again.load(path)
        digest = again.ctx.get_kv_self().state_hash().hex()
        again.ctx.close()
        if marks and "saved" in marks[-1]:
            assert digest == marks[-1]["saved"]
            self.tally.n_saved += 1
        elif marks and "saving" in marks[-1]:
            before = [line["saved"] for line in marks[:-1] if "saved" in line][-1:]
            assert not before or digest in (marks[-1]["saving"], *before)
            self.tally.n_in_flight += 1

    def _check_migrate(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        database = Database.open(folder)
        assert database.notice == ""
        row = database.connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()
        assert row[0] == str(SCHEMA)
        contents = contents_of(database)
        assert {m.text for content in contents for m in content.messages} == {f"text {i}" for i in range(200)}
        database.close()
        check_backups(folder)

    def _check_backup(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        database = Database.open(folder)
        assert database.notice == ""
        kept = {line["kept"] for line in lines if "kept" in line}
        assert kept <= {chat.id for chat in ChatStore(database).chats()}
        database.close()
        check_backups(folder)

    def _check_text(self, folder: Path, lines: list[dict[str, object]], killed_at: float) -> None:
        """Of each reply at most the end is missing: what came after the last flush, and mostly a quarter second."""
        database = Database.open(folder)
        assert database.notice == ""
        ChatStore(database).recover()
        texts = {m.id: m for content in contents_of(database) for m in content.messages}
        shown: dict[int, list[tuple[float, str]]] = {}
        flushed: Counter[int] = Counter()
        for line in lines:
            if "text" in line:
                shown.setdefault(int(str(line["reply"])), []).append((float(str(line["at"])), str(line["text"])))
            for message_id, text in line.get("flushed", []):  # type: ignore[attr-defined]
                flushed[message_id] += len(text)
        is_late = False
        for message_id, chunks in shown.items():
            everything = "".join(text for _, text in chunks)
            safe = "".join(text for at, text in chunks if at < killed_at - LOST_AT_MOST_S)
            kept = texts[message_id].text if message_id in texts else ""
            assert everything.startswith(kept) or kept.startswith(everything)
            assert len(kept) >= flushed[message_id]
            is_late |= len(kept) < len(safe)
        self.tally.n_late += is_late
        states = {m.state for m in texts.values()}
        assert states <= {"done", "interrupted", "stopped"}
        assert database.connection.execute("PRAGMA foreign_key_check").fetchall() == []
        database.close()


def contents_of(database: Database) -> list[ChatContent]:
    """All chats with their branches."""
    store = ChatStore(database)
    contents = [store.content(chat.id) for chat in store.chats()]
    return [content for content in contents if content is not None]


def check_sessions(folder: Path) -> None:
    """Every session file that is there is whole."""
    own = Session(context("llama", n_ctx=8192, n_ubatch=32))
    for path in folder.glob("*.kv"):
        own.load(path)
        assert own.n_used > 0
    own.ctx.close()


def check_backups(folder: Path) -> None:
    """Every backup that is there is whole."""
    for path in (folder / "backups").glob("causerie-*.db"):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone()[0] == "ok"


def make_old_database(folder: Path) -> None:
    """A database of the first schema with two hundred messages."""
    with contextlib.closing(sqlite3.connect(folder / FILE_NAME)) as old:
        old.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        for statement in MIGRATIONS[0]:
            old.execute(statement)
        old.execute("INSERT INTO meta VALUES('schema', '1')")
        for i in range(200):
            if i % 20 == 0:
                old.execute("INSERT INTO chat(id, title, used_at, leaf_id) VALUES(?, 'Old', 5, ?)", (1000 + i, i + 20))
            old.execute(
                "INSERT INTO message(id, chat_id, parent_id, role, text, state, created_at) "
                "VALUES(?, ?, ?, 'user', ?, 'done', 5)",
                (i + 1, 1000 + i - i % 20, i if i % 20 else None, f"text {i}"),
            )
        old.commit()


def main(n_store: int, n_program: int) -> None:
    """Run so many rounds and print what was seen."""
    folder = Path(tempfile.mkdtemp(prefix="causerie-crash-"))
    seed = random.SystemRandom().randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    rounds, rng = Rounds(folder, seed), random.Random(seed)
    names = rng.choices(list(SHARES), weights=list(SHARES.values()), k=n_store) + ["program"] * n_program
    try:
        for i, name in enumerate(names):
            rounds.run(name)
            if i % 50 == 49:
                print(i + 1, rounds.tally, flush=True)
    finally:
        rounds.close()
    shutil.rmtree(folder)
    print(rounds.tally)
    assert rounds.tally.n_late <= 0.1 * len(names)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
