"""What the store and the session writer do on a disk that is full, and in a folder that cannot be written to.

`python -m tests.crash.full_disk FOLDER` in a mount namespace of its own: it mounts small disks on the folder, and prints
"skip: why" where it may not, or "ok".
"""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject

from app.bridge.messages import ReplyFinished, ReplyStarted, TextChunk
from app.storage.chats import ChatStore
from app.storage.database import FILE_NAME, Database
from app.storage.records import AddMessages, ChatRecord, MessageRecord, StoreFailed
from app.storage.worker import StorageWorker
from engine.session import Session
from engine.turns import Turn
from tests.engine.oracle_cases import context
from tests.engine.test_session_log import talk

SIZE = "2m"


def mounted(folder: Path, options: str) -> str:
    """Mount a small disk on a folder; returns why that cannot be, "" where it was."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


class Watcher(QObject):
    """Keeps what a storage worker tells."""

    def __init__(self, worker: StorageWorker) -> None:
        super().__init__()
        self.failures: list[str] = []
        worker.happened.connect(self.on_happened)

    def on_happened(self, event: object) -> None:
        """Keep failures."""
        if isinstance(event, StoreFailed):
            self.failures.append(event.error.title)


def ask(worker: StorageWorker, first: int, text: str) -> None:
    """A message, and the beginning of its reply."""
    messages = (
        MessageRecord(first, first, None, "user", text),
        MessageRecord(first + 1, first, first, "assistant", "", "queued"),
    )
    worker.on_request(AddMessages(ChatRecord(first, "c", time.time(), leaf_id=first + 1), messages))
    worker.on_engine_event(ReplyStarted(1, first, first + 1))
    worker.on_engine_event(TextChunk(1, first, first + 1, "the reply", 1, 1, 1.0))


def store_on_full_disk(folder: Path) -> None:
    """Text that does not fit is said to be lost, what was there stays, and later there is room again."""
    worker = StorageWorker(folder)
    watcher = Watcher(worker)
    worker.start()
    ask(worker, 1, "first")
    worker.on_engine_event(ReplyFinished(1, 1, 2, "stop"))
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    assert watcher.failures == []
    ask(worker, 10, "x" * 500_000)
    assert "Disk full" in watcher.failures, watcher.failures
    ballast.unlink()
    ask(worker, 20, "third")
    worker.on_engine_event(ReplyFinished(1, 20, 21, "stop"))
    database = Database.open(folder)
    assert database.notice == ""
    store = ChatStore(database)
    texts = {
        chat.id: [m.text for m in content.messages] for chat in store.chats() if (content := store.content(chat.id))
    }
    assert texts == {1: ["first", "the reply"], 20: ["third", "the reply"]}, texts
    database.close()


def session_on_full_disk(folder: Path) -> None:
    """A session that does not fit any more leaves the generation before."""
    own, turns, path = (
        Session(context("llama", n_ctx=8192, n_ubatch=32)),
        [Turn("s", tuple(range(10, 30)))],
        folder / "c.kv",
    )
    good = b""
    for i in range(400):
        talk(own, turns, 1, i)
        try:
            own.save(path)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
        good = own.ctx.get_kv_self().state_hash()
    else:
        raise AssertionError("the disk was never full")
    again = Session(context("llama", n_ctx=8192, n_ubatch=32))
    again.load(path)
    assert again.ctx.get_kv_self().state_hash() == good


def readonly_folder(folder: Path) -> None:
    """The program says that nothing is kept, and can be used."""
    database = Database.open(folder)
    database.close()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        (folder / "probe").write_text("x")
    except OSError as error:
        assert error.errno == errno.EROFS
    else:
        raise AssertionError("the folder can be written to")
    before = (folder / FILE_NAME).read_bytes()
    try:
        Database.open(folder)
    except (sqlite3.Error, OSError):
        pass
    else:
        raise AssertionError("a read-only folder was opened for writing")
    worker = StorageWorker(folder)
    watcher = Watcher(worker)
    worker.start()
    assert watcher.failures
    ask(worker, 1, "first")
    assert (folder / FILE_NAME).read_bytes() == before


def main(folder: Path) -> str:
    """Run all of it."""
    for i, check in enumerate((store_on_full_disk, session_on_full_disk, readonly_folder)):
        disk = folder / str(i)
        reason = mounted(disk, f"size={SIZE}")
        if reason:
            return f"skip: {reason}"
        check(disk)
    return "ok"


if __name__ == "__main__":
    app = QCoreApplication(sys.argv[:1])
    print(main(Path(sys.argv[1])), flush=True)
    os._exit(0)
