"""The program's storage killed in the middle of a stream, again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.storage.chats import ChatStore
from app.storage.database import Database

N_KILLS = 12
LOST_AT_MOST_S = 0.25
N_LATE_AT_MOST = 1  # a machine that is busy elsewhere may hold up one commit

CHILD = """
import sys, time, os
from pathlib import Path
from PySide6.QtCore import QCoreApplication, QObject, QTimer, Qt, Signal
from app.bridge.messages import ReplyFinished, ReplyStarted, TextChunk
from app.storage.client import StorageClient
from app.storage.records import AddMessages, ChatRecord, MessageRecord, StoreOpened

class Feeder(QObject):
    made = Signal(object)
    def __init__(self, client):
        super().__init__()
        self.client, self.n = client, 0
        client.happened.connect(self.on_happened)
        self.made.connect(client.worker.on_engine_event, Qt.ConnectionType.QueuedConnection)
        self.timer = QTimer(self)
        self.timer.setInterval(20)
        self.timer.timeout.connect(self.on_timeout)
    def on_happened(self, event):
        if isinstance(event, StoreOpened):
            first = event.next_id
            self.user, self.reply = first, first + 1
            self.chat = first + 2
            chat = ChatRecord(self.chat, "chat", time.time(), leaf_id=self.reply)
            self.client.submit(AddMessages(chat, (
                MessageRecord(self.user, self.chat, None, "user", "question"),
                MessageRecord(self.reply, self.chat, self.user, "assistant", "", "queued"))))
            self.made.emit(ReplyStarted(1, self.chat, self.reply))
            os.write(1, f'{{"reply": {self.reply}}}\\n'.encode())
            self.timer.start()
    def on_timeout(self):
        text = f"{self.n:06d} "
        self.n += 1
        self.made.emit(TextChunk(1, self.chat, self.reply, text, self.n, self.n, 50.0))
        os.write(1, f'{{"at": {time.monotonic()}, "text": "{text}"}}\\n'.encode())

app = QCoreApplication([])
client = StorageClient(Path(sys.argv[1]))
feeder = Feeder(client)
client.start()
app.exec()
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_kill_loses_at_most_a_quarter_second_of_text(tmp_path: Path) -> None:
    rng = random.Random(11)
    replies: dict[int, str] = {}
    n_late = 0
    for _ in range(N_KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
        )
        assert child.stdout is not None
        reply_id = json.loads(child.stdout.readline())["reply"]
        time.sleep(rng.uniform(0.05, 0.8))
        killed_at = time.monotonic()
        child.send_signal(signal.SIGKILL)
        shown = [json.loads(line) for line in child.stdout.read().splitlines() if line.endswith(b"}")]
        child.wait()
        child.stdout.close()
        database = Database.open(tmp_path)
        assert database.notice == ""
        store = ChatStore(database)
        store.recover()
        contents = [store.content(chat.id) for chat in store.chats()]
        texts = {m.id: m for content in contents if content for m in content.messages}
        reply = texts[reply_id]
        assert reply.state == "interrupted"
        everything = "".join(line["text"] for line in shown)
        safe = "".join(line["text"] for line in shown if line["at"] < killed_at - LOST_AT_MOST_S)
        n_late += not reply.text.startswith(safe)
        assert everything.startswith(reply.text) or reply.text.startswith(everything)
        assert texts[reply_id - 1].text == "question"
        for old_id, text in replies.items():
            assert texts[old_id].text == text
        replies[reply_id] = reply.text
        database.close()
    assert n_late <= N_LATE_AT_MOST
    assert any(replies.values())
