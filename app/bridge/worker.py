"""The object that lives in the engine thread, and hands jobs to the engine."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextView, CostKnown
from app.bridge.messages import (
    CloseEngine,
    EngineEvent,
    EngineRequest,
    EstimateCost,
    ForgetChat,
    Generate,
    InspectChat,
    JobFailed,
    LoadModel,
    ModelLoaded,
    ModelLoading,
    ReplyFinished,
    ReplyStarted,
    RestoreChat,
    SaveChat,
    UserError,
)
from app.bridge.pool import SessionPool
from app.bridge.port import ChatEngine, ChatModel
from app.bridge.stream import EVENT_EVERY_S, ReplyStream

log = logging.getLogger(__name__)


class LoadCancelledError(Exception):
    """Ends the loading of a model that nobody waits for any more."""


class EngineWorker(QObject):
    """Starts replies, which the engine makes together, and carries out the other jobs between them.

    Signals:
        happened(EngineEvent)

    Thread: the engine thread, which must have an event loop; made in any thread and moved there.
    """

    happened = Signal(object)
    _reply_ended = Signal(int)
    _save_wanted = Signal(int)

    def __init__(self, make_engine: Callable[[], ChatEngine], sessions: Path) -> None:
        super().__init__()
        self._make_engine = make_engine
        self._sessions = sessions
        self._engine: ChatEngine | None = None
        self._model: ChatModel | None = None
        self._pool: SessionPool | None = None
        self._queue: deque[tuple[EngineRequest, JobCancel]] = deque()
        self._active: set[int] = set()  # chats whose reply is being made
        queued = Qt.ConnectionType.QueuedConnection
        self._reply_ended.connect(self._on_reply_ended, queued)
        self._save_wanted.connect(self._on_save_wanted, queued)

    def on_request(self, request: EngineRequest, cancel: JobCancel) -> None:
        """Carry out a job in its turn; whatever goes wrong becomes an event."""
        self._queue.append((request, cancel))
        self._go_on()

    def drop_cancelled(self) -> None:
        """End the replies that were stopped while they wait."""
        waiting, self._queue = self._queue, deque()
        for request, cancel in waiting:
            if isinstance(request, Generate) and cancel.is_set():
                self._tell(ReplyFinished(request.job_id, request.chat_id, request.reply_id, "cancelled"))
            else:
                self._queue.append((request, cancel))
        self._go_on()

    def _go_on(self) -> None:
        """Carry out what need not wait any longer."""
        while self._queue and not self._has_to_wait(self._queue[0][0]):
            request, cancel = self._queue.popleft()
            try:
                self._run(request, cancel)
            except LoadCancelledError:
                log.info("loading was cancelled")
            except Exception as error:
                log.exception("job failed: %s", type(request).__name__)
                self._tell_failure(request, self._explain(error))

    def _has_to_wait(self, request: EngineRequest) -> bool:
        """Whether replies that are being made stand in the way of a job."""
        match request:
            case LoadModel() | CloseEngine():
                return bool(self._active)
            case Generate():
                return request.chat_id in self._active or (self._pool is not None and self._pool.is_full(self._active))
            case RestoreChat() | EstimateCost() | InspectChat():
                return False
            case SaveChat() | ForgetChat():
                return request.chat_id in self._active
            case _:
                assert_never(request)

    def _run(self, request: EngineRequest, cancel: JobCancel) -> None:
        match request:
            case LoadModel():
                self._load(request, cancel)
            case Generate():
                self._generate(request, cancel)
            case RestoreChat():
                # Replies that are being made go first, and memory that others use is not taken.
                if self._pool is not None and not self._active:
                    self._pool.restore(request.chat_id, request.n_ctx)
            case EstimateCost():
                if self._pool is not None and self._model is not None:
                    cost = self._model.cost(request, self._pool.in_memory(request.chat_id))
                    self._tell(CostKnown(request.chat_id, request.draft, cost))
            case InspectChat():
                known = self._pool.inspect(request.chat_id) if self._pool is not None else ContextView(request.chat_id)
                self._tell(known)
            case SaveChat():
                if self._pool is not None:
                    self._pool.save(request.chat_id)
            case ForgetChat():
                if self._pool is not None:
                    self._pool.drop(request.chat_id)
            case CloseEngine():
                try:
                    self._close_model()
                finally:
                    QThread.currentThread().quit()
            case _:
                assert_never(request)

    def _load(self, request: LoadModel, cancel: JobCancel) -> None:
        told_at = 0.0

        def progress(fraction: float) -> None:
            nonlocal told_at
            if cancel.is_set():
                raise LoadCancelledError
            now = time.monotonic()
            if now - told_at >= EVENT_EVERY_S:
                told_at = now
                self._tell(ModelLoading(request.job_id, fraction))

        progress(0.0)
        if self._engine is None:
            self._engine = self._make_engine()
        self._close_model()
        self._model = self._engine.load_model(Path(request.path), request.n_threads, request.options, progress)
        self._pool = SessionPool(self._model, self._sessions, self._tell)
        self._tell(ModelLoaded(request.job_id, self._model.info))

    def _generate(self, request: Generate, cancel: JobCancel) -> None:
        if cancel.is_set():
            self._tell(ReplyFinished(request.job_id, request.chat_id, request.reply_id, "cancelled"))
            return
        if self._model is None or self._pool is None:
            error = UserError("No model", "No model is loaded.", "Choose one in the model picker and send again.")
            self._tell_failure(request, error)
            return
        self._tell(ReplyStarted(request.job_id, request.chat_id, request.reply_id))
        session, note = self._pool.take(request.chat_id, request.n_ctx, self._active)
        self._pool.mark_dirty(request.chat_id, request.reply_id, is_kept=not request.is_temporary)
        model_fp = self._model.info.fingerprint
        stream = ReplyStream(self._tell, request, session, model_fp, note, self._explain, self._reply_ended.emit)
        self._active.add(request.chat_id)
        try:
            session.start(request, cancel, stream.take)
        except BaseException:
            self._active.discard(request.chat_id)
            raise

    def _on_reply_ended(self, chat_id: int) -> None:
        self._active.discard(chat_id)
        self._go_on()
        # At the end of the queue: a reply that waits goes first.
        self._save_wanted.emit(chat_id)

    def _on_save_wanted(self, chat_id: int) -> None:
        self.on_request(SaveChat(chat_id), JobCancel())

    def _close_model(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._model is not None:
            self._model.close()
            self._model = None

    def _tell_failure(self, request: EngineRequest, error: UserError) -> None:
        if isinstance(request, Generate):
            self._tell(ReplyFinished(request.job_id, request.chat_id, request.reply_id, "failed", error=error))
        elif isinstance(request, LoadModel):
            self._tell(JobFailed(request.job_id, error))

    def _explain(self, error: Exception) -> UserError:
        if self._engine is not None:
            return self._engine.explain(error)
        return UserError(
            "The engine does not start", f"The engine could not be started: {error}.", "Install Causerie again."
        )

    def _tell(self, event: EngineEvent) -> None:
        self.happened.emit(event)
