"""What a child does until it is killed; it logs what a person would have seen, and what was on disk by then."""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, Qt, QTimer, Signal

from app.application import Application
from app.bridge.cancel import JobCancel
from app.bridge.local_engine import LocalEngine
from app.bridge.messages import EngineOptions, Generate, PromptMessage, ReplyFinished, ReplyStarted, Sampling, TextChunk
from app.bridge.pool import SessionPool
from app.bridge.port import Broken, Ended, PortEvent
from app.storage.chats import ChatStore
from app.storage.client import StorageClient
from app.storage.database import Database
from app.storage.records import AddMessages, ChatRecord, MessageRecord, StoreOpened
from engine.generate import GenerateParams, generate
from engine.sampling import SamplerParams
from engine.session import Session
from engine.turns import Turn
from tests.engine.oracle_cases import DATA, context

TOKEN_MS = 10


class Log:
    """Lines that survive the end of the process: each is one write to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def line(self, **fields: object) -> None:
        """Write what happened now."""
        os.write(self._file, json.dumps({"at": time.monotonic(), **fields}).encode() + b"\n")


class Feeder(QObject):
    """Plays the engine for a storage thread: one reply after the other, a word every few milliseconds."""

    made = Signal(object)

    def __init__(self, client: StorageClient, log: Log, n_words: int) -> None:
        super().__init__()
        self._client, self._log, self._n_words = client, log, n_words
        self._next_id = self._reply_id = self._n = 0
        client.happened.connect(self.on_happened)
        self.made.connect(client.worker.on_engine_event, Qt.ConnectionType.QueuedConnection)
        self._timer = QTimer(self)
        self._timer.setInterval(TOKEN_MS)
        self._timer.timeout.connect(self.on_timeout)

    def on_happened(self, event: object) -> None:
        """Begin when the storage is open."""
        if isinstance(event, StoreOpened):
            self._next_id = event.next_id
            self._begin()
            self._timer.start()

    def on_timeout(self) -> None:
        """Make a word, or end the reply."""
        if self._n == self._n_words:
            self.made.emit(ReplyFinished(1, self._chat_id, self._reply_id, "stop"))
            self._begin()
        text = f"{self._n:06d} "
        self._n += 1
        self._log.line(reply=self._reply_id, text=text)
        self.made.emit(TextChunk(1, self._chat_id, self._reply_id, text, self._n, self._n, 50.0))

    def _begin(self) -> None:
        user, self._reply_id, self._chat_id = self._next_id, self._next_id + 1, self._next_id + 2
        self._next_id += 3
        self._n = 0
        chat = ChatRecord(self._chat_id, "chat", time.time(), leaf_id=self._reply_id)
        messages = (
            MessageRecord(user, self._chat_id, None, "user", "question"),
            MessageRecord(self._reply_id, self._chat_id, user, "assistant", "", "queued"),
        )
        self._client.submit(AddMessages(chat, messages))
        self.made.emit(ReplyStarted(1, self._chat_id, self._reply_id))


def stream(folder: Path, log: Log, seed: int) -> None:
    """Stream replies into the store; each flush is logged when it is on its way and when it is done."""
    plain = ChatStore.append_chunks

    def logged(store: ChatStore, chunks: list[tuple[int, str]]) -> None:
        plain(store, chunks)
        log.line(flushed=chunks)

    setattr(ChatStore, "append_chunks", logged)  # noqa: B010
    app = QCoreApplication([])
    client = StorageClient(folder)
    feeder = Feeder(client, log, random.Random(seed).randrange(10, 200))
    client.start()
    app.exec()
    feeder.deleteLater()


def session(folder: Path, log: Log, seed: int) -> None:
    """Talk with a tiny model and save after each reply, in a file that grows and is written anew at times."""
    rng = random.Random(seed)
    own = Session(context("llama", n_ctx=128, n_ubatch=32))
    path = folder / "chat.kv"
    if path.exists():
        own.load(path)
    turns: list[Turn] = [Turn("s", tuple(rng.randrange(10, 200) for _ in range(8)), pinned=True)]
    for i in itertools.count():
        if rng.random() < 0.1:
            del turns[1:]
        if rng.random() < 0.1:
            log.line(deleting=True)
            path.unlink(missing_ok=True)
        turns.append(Turn(f"{seed}.{i}", tuple(rng.randrange(10, 200) for _ in range(rng.randrange(1, 30)))))
        params = GenerateParams(SamplerParams(temperature=0.0), rng.randrange(1, 12), ignore_eog=True)
        for _ in generate(own, turns, params):
            pass
        digest = own.ctx.get_kv_self().state_hash().hex()
        log.line(saving=digest)
        own.save(path)
        log.line(saved=digest)


def pool(folder: Path, log: Log, seed: int) -> None:
    """Answer more chats than have room in memory, so that some leave for their files all the time."""
    model = LocalEngine().load_model(DATA / "llama" / "model.gguf", 1, EngineOptions(), lambda fraction: None)
    sessions = SessionPool(model, folder, lambda event: log.line(event=type(event).__name__))
    rng = random.Random(seed)
    over: list[bool] = []

    def on_event(event: PortEvent) -> None:
        if isinstance(event, (Ended, Broken)):
            over.append(True)

    log.line(ready=True)
    for i in itertools.count():
        chat_id = rng.randrange(1, 13)
        own, note = sessions.take(chat_id, 128, ())
        log.line(note=note)
        sessions.mark_dirty(chat_id, i, is_kept=True)
        messages = (PromptMessage(1, "user", "".join(rng.choices("abcdef ", k=rng.randrange(4, 60)))),)
        over.clear()
        own.start(Generate(i, chat_id, 2, messages, Sampling(temperature=0.0), 4, 128), JobCancel(), on_event)
        while not over:
            time.sleep(0.0005)
        sessions.save(chat_id)


def migrate(folder: Path, log: Log, seed: int) -> None:
    """Bring an old database up to date."""
    log.line(ready=True)
    Database.open(folder).close()
    log.line(done=True)
    time.sleep(10)


def backup(folder: Path, log: Log, seed: int) -> None:
    """Write backups, one after the other, with changes between them."""
    database = Database.open(folder)
    store = ChatStore(database)
    log.line(ready=True)
    day, first = time.time(), store.next_id()
    for i in itertools.count():
        chat_id = first + 2 * i
        store.add_messages(
            AddMessages(
                ChatRecord(chat_id, "c", day, leaf_id=chat_id + 1),
                (MessageRecord(chat_id + 1, chat_id, None, "user", "x" * 20_000),),
            )
        )
        log.line(kept=chat_id)
        day += 200_000
        database.backup_if_due(day)


def program(folder: Path, log: Log, seed: int) -> None:
    """Run the whole program on a tiny model: ask, and ask again when the reply is over."""
    from PySide6.QtWidgets import QApplication

    rng = random.Random(seed)
    app = QApplication([])
    own = Application(app, folder)
    own.settings.n_predict, own.settings.temperature, own.settings.n_threads = rng.randrange(5, 400), 0.0, 1
    visit = Visit(own, log, rng)
    own.start(str(DATA / "llama" / "model.gguf"))
    app.exec()
    visit.deleteLater()


class Visit(QObject):
    """Somebody who keeps asking, in new chats and old ones, and leaves replies alone."""

    def __init__(self, program: Application, log: Log, rng: random.Random) -> None:
        super().__init__()
        self._program, self._log, self._rng = program, log, rng
        program.controller.conversation.text_appended.connect(self.on_text_appended)
        self._timer = QTimer(self)
        self._timer.setInterval(5)
        self._timer.timeout.connect(self.on_timeout)
        self._timer.start()

    def on_text_appended(self, index: int, delta: str) -> None:
        """Log what is shown."""
        self._log.line(reply=self._program.controller.conversation.items()[index].id, text=delta)

    def on_timeout(self) -> None:
        """Ask where nothing is being made."""
        controller = self._program.controller
        if controller.generation.phase.name == "IDLE":
            if self._rng.random() < 0.3:
                controller.new_chat()
            elif self._rng.random() < 0.2 and controller.chats.rows():
                controller.open_chat(self._rng.choice(controller.chats.rows()).chat_id)
                return
            controller.send("".join(self._rng.choices("abcdef ", k=30)) + ".")


SCENARIOS: dict[str, Callable[[Path, Log, int], None]] = {
    "stream": stream,
    "session": session,
    "pool": pool,
    "migrate": migrate,
    "backup": backup,
    "program": program,
}
