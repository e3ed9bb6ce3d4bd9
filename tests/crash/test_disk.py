"""Full disks and folders that cannot be written to, on small disks in a mount namespace of their own."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.storage.chats import ChatStore
from app.storage.database import FILE_NAME, Database
from app.storage.records import AddMessages, ChatRecord, MessageRecord
from tests.models import ROOT


def test_full_disk_and_readonly_folder(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not installed: no mount namespace")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-m", "tests.crash.full_disk", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.stdout.startswith("skip") or "unshare failed" in done.stderr:
        pytest.skip(f"no mount namespace: {(done.stdout or done.stderr).strip()}")
    assert done.stdout.strip() == "ok", done.stderr


def test_a_log_torn_by_a_loss_of_power_opens_clean(tmp_path: Path) -> None:
    """What was on its way when the power went is gone or garbage; what was told to be on disk is there."""
    database = Database.open(tmp_path)
    store, rng = ChatStore(database), random.Random(5)
    wal = tmp_path / f"{FILE_NAME}-wal"
    safe: list[tuple[int, int]] = []
    for chat_id in range(1, 30):
        message = MessageRecord(100 + chat_id, chat_id, None, "user", "x" * rng.randrange(10, 9000))
        store.add_messages(AddMessages(ChatRecord(chat_id, "c", 1.0, leaf_id=100 + chat_id), (message,)))
        safe.append((wal.stat().st_size, chat_id))
        store.append_chunks([(100 + chat_id, "y" * rng.randrange(10, 5000))])
    log, main = wal.read_bytes(), (tmp_path / FILE_NAME).read_bytes()
    database.close()
    for i in range(30):
        folder = tmp_path / f"torn{i}"
        folder.mkdir()
        cut = rng.randrange(len(log))
        tail = (b"", bytes(len(log) - cut), rng.randbytes(len(log) - cut))[i % 3]
        (folder / FILE_NAME).write_bytes(main)
        (folder / f"{FILE_NAME}-wal").write_bytes(log[:cut] + tail)
        database = Database.open(folder)
        assert database.notice == ""
        kept = {chat.id for chat in ChatStore(database).chats()}
        assert kept >= {chat_id for end, chat_id in safe if end <= cut}
        database.close()
