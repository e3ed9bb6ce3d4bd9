"""Stand-ins for tests of the window's parts: storage without a thread, and an engine whose lines the test speaks."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path

from PySide6.QtCore import QObject

from app.bridge.messages import (
    EngineEvent,
    EngineOptions,
    EstimateCost,
    Finish,
    ModelInfo,
    ModelLoaded,
    Overflow,
    PrefillProgress,
    PromptMessage,
    ReplyFinished,
    ReplyRecord,
    ReplyStarted,
    ReplyStats,
    Sampling,
    TextChunk,
    UserError,
)
from app.models import ChatController
from app.settings import Settings
from app.storage.records import StoreRequest
from app.storage.worker import StorageWorker


class InlineStore(QObject):
    """Storage that does everything at once, in the calling thread."""

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.worker = StorageWorker(folder)
        self.requests: list[StoreRequest] = []

    def submit(self, request: StoreRequest) -> None:
        self.requests.append(request)
        self.worker.on_request(request)


class ScriptedEngine:
    """An engine that notes what it was asked for; the test says what it answers."""

    def __init__(self) -> None:
        self.controller: ChatController | None = None
        self.store: InlineStore | None = None
        self.prompts: dict[int, tuple[PromptMessage, ...]] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.cancelled: list[int] = []
        self.forgotten: list[int] = []
        self.restored: list[int] = []
        self.inspected: list[int] = []
        self.record = ReplyRecord()
        self.ways: dict[int, tuple[Sampling, int]] = {}
        self.asked: dict[int, tuple[frozenset[int], Overflow]] = {}
        self.questions: list[EstimateCost] = []
        self.loads: list[str] = []
        self._last_job_id = 0

    def load_model(self, path: str, n_threads: int | None, options: EngineOptions) -> int:
        self.loads.append(path)
        return self._next_job()

    def generate(
        self,
        chat_id: int,
        reply_id: int,
        messages: tuple[PromptMessage, ...],
        sampling: Sampling,
        n_predict: int,
        n_ctx: int,
        out_ids: frozenset[int],
        began_at: str,
        is_temporary: bool = False,
        overflow: Overflow = "shift",
    ) -> int:
        job_id = self._next_job()
        self.prompts[job_id] = messages
        self.ways[job_id] = (sampling, n_predict)
        self.asked[job_id] = (out_ids, overflow)
        self.places[job_id] = (chat_id, reply_id)
        return job_id

    def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)

    def estimate(self, request: EstimateCost) -> None:
        self.questions.append(request)

    def inspect(self, chat_id: int) -> None:
        self.inspected.append(chat_id)

    def restore_chat(self, chat_id: int, n_ctx: int) -> None:
        self.restored.append(chat_id)

    def forget_chat(self, chat_id: int) -> None:
        self.forgotten.append(chat_id)

    @property
    def last_job_id(self) -> int:
        return self._last_job_id

    def loaded(self, name: str = "Fake 1B", n_ctx_train: int = 2048) -> None:
        info = ModelInfo(f"/models/{name}.gguf", name, "fake", n_ctx_train, "fp")
        self.tell(ModelLoaded(self._last_job_id, info))

    def start(self, job_id: int) -> None:
        self.tell(ReplyStarted(job_id, *self.places[job_id]))

    def prefill(self, job_id: int, n_done: int, n_total: int, n_reused: int) -> None:
        self.tell(PrefillProgress(job_id, self.places[job_id][0], n_done, n_total, n_reused))

    def say(self, job_id: int, text: str) -> None:
        self.tell(TextChunk(job_id, *self.places[job_id], text, 1, 10, 25.0))

    def finish(
        self,
        job_id: int,
        finish: Finish = "stop",
        error: UserError | None = None,
        out_ids: frozenset[int] = frozenset(),
    ) -> None:
        stats = ReplyStats(20, 15, 5, 3, 10.0, 100.0, 30.0)
        self.tell(
            ReplyFinished(
                *(job_id, *self.places[job_id], finish, stats, error),
                *(b"\x01\x00\x00\x00", "fp", out_ids, 23, 512),
                record=self.record,
            )
        )

    def tell(self, event: EngineEvent) -> None:
        assert self.controller is not None and self.store is not None
        self.store.worker.on_engine_event(event)
        self.controller.on_engine_event(event)

    def _next_job(self) -> int:
        self._last_job_id += 1
        return self._last_job_id


def make_bench(folder: Path, parent: QObject | None = None) -> tuple[ChatController, ScriptedEngine, InlineStore]:
    """Return a controller on a data folder, with a model loaded, and the engine and storage it talks to."""
    engine, store = ScriptedEngine(), InlineStore(folder, parent)
    controller = ChatController(engine, store, Settings(folder / "settings.ini"), parent)
    engine.controller, engine.store = controller, store
    store.worker.happened.connect(controller.on_store_event)
    store.worker.start()
    controller.load_model("/models/Fake 1B.gguf")
    engine.loaded()
    return controller, engine, store


def make_controller(parent: QObject | None = None) -> ChatController:
    """Return a controller that works without an engine: messages are kept, replies stay queued."""
    folder = Path(tempfile.mkdtemp(prefix="causerie-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    controller, _, store = make_bench(folder, parent)
    store.setParent(controller)
    return controller
