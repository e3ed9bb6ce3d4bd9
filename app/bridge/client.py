"""The GUI thread's side of the engine thread: all that the rest of the program knows of the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextView, CostKnown
from app.bridge.messages import (
    CloseEngine,
    EngineEvent,
    EngineOptions,
    EstimateCost,
    ForgetChat,
    Generate,
    InspectChat,
    JobFailed,
    LoadModel,
    ModelLoaded,
    Overflow,
    PromptMessage,
    ReplyFinished,
    RestoreChat,
    Sampling,
    SessionNotSaved,
    SessionSaved,
)
from app.bridge.port import ChatEngine
from app.bridge.worker import EngineWorker


def local_engine() -> ChatEngine:
    """Make the engine of this program; called in the engine thread, so that reading its modules holds up nothing."""
    from app.bridge.engines import Engines

    return Engines()


class EngineClient(QObject):
    """Starts the engine thread, passes jobs to it and events back.

    Attributes:
        worker: the object in the engine thread; storage is connected to its events.

    Signals:
        happened(EngineEvent): in the GUI thread; events of jobs that are over or were replaced are dropped.

    Thread: GUI thread.
    """

    happened = Signal(object)
    _requested = Signal(object, object)
    _cancelled = Signal()

    def __init__(
        self,
        sessions: Path,
        make_engine: Callable[[], ChatEngine] = local_engine,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._last_job_id = 0
        self._load_job_id = 0
        self._jobs: dict[int, JobCancel] = {}
        self._thread = QThread(self)
        self._thread.setObjectName("engine")
        self.worker = EngineWorker(make_engine, sessions)
        self.worker.moveToThread(self._thread)
        self._requested.connect(self.worker.on_request, Qt.ConnectionType.QueuedConnection)
        self._cancelled.connect(self.worker.drop_cancelled, Qt.ConnectionType.QueuedConnection)
        self.worker.happened.connect(self._on_worker_happened, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def load_model(
        self,
        path: str,
        n_threads: int | None = None,
        options: EngineOptions = EngineOptions(),  # noqa: B008
    ) -> int:
        """Load a model once the running replies are over; one that is still loading is given up.

        Returns: the job's id.
        """
        self.cancel(self._load_job_id)
        self._jobs.pop(self._load_job_id, None)
        job_id, cancel = self._new_job()
        self._load_job_id = job_id
        self._requested.emit(LoadModel(job_id, path, n_threads, options), cancel)
        return job_id

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
        """Make a reply, beside those that other chats get.

        Returns: the job's id.
        """
        job_id, cancel = self._new_job()
        request = Generate(
            *(job_id, chat_id, reply_id, messages, sampling, n_predict, n_ctx, out_ids, began_at),
            *(is_temporary, overflow),
        )
        self._requested.emit(request, cancel)
        return job_id

    def cancel(self, job_id: int) -> None:
        """Stop a job, running or waiting; a reply still ends with `ReplyFinished`."""
        cancel = self._jobs.get(job_id)
        if cancel is not None:
            cancel.set()
            self._cancelled.emit()

    def estimate(self, request: EstimateCost) -> None:
        """Ask what sending a draft would cost; `CostKnown` follows."""
        self._requested.emit(request, JobCancel())

    def inspect(self, chat_id: int) -> None:
        """Ask what is in a chat's context; `ContextView` follows."""
        self._requested.emit(InspectChat(chat_id), JobCancel())

    def restore_chat(self, chat_id: int, n_ctx: int) -> None:
        """Read a chat's memory from its file, unless replies are being made."""
        self._requested.emit(RestoreChat(chat_id, n_ctx), JobCancel())

    def forget_chat(self, chat_id: int) -> None:
        """Save a chat's memory and let go of it."""
        self._requested.emit(ForgetChat(chat_id), JobCancel())

    def shutdown(self, timeout_ms: int) -> bool:
        """Stop all jobs, save the chats' memory and end the thread.

        Returns: whether the thread ended in time.
        """
        if not self._thread.isRunning():
            return True
        for cancel in self._jobs.values():
            cancel.set()
        self._requested.emit(CloseEngine(), JobCancel())
        return self._thread.wait(timeout_ms)

    def _new_job(self) -> tuple[int, JobCancel]:
        self._last_job_id += 1
        cancel = self._jobs[self._last_job_id] = JobCancel()
        return self._last_job_id, cancel

    def _on_worker_happened(self, event: EngineEvent) -> None:
        if isinstance(event, (SessionSaved, SessionNotSaved, CostKnown, ContextView)):
            self.happened.emit(event)
        elif event.job_id in self._jobs:
            if isinstance(event, (ReplyFinished, ModelLoaded, JobFailed)):
                del self._jobs[event.job_id]
            self.happened.emit(event)
