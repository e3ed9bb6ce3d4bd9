"""The object that lives in the engine thread, and owns all of the engine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.bridge.cancel import JobCancel
from app.bridge.messages import (
    CloseEngine,
    EngineEvent,
    EngineRequest,
    ForgetChat,
    Generate,
    JobFailed,
    LoadModel,
    ModelLoaded,
    ModelLoading,
    PrefillProgress,
    ReplyFinished,
    ReplyStarted,
    SaveChat,
    TextChunk,
    UserError,
)
from app.bridge.pool import SessionPool
from app.bridge.port import ChatEngine, ChatModel, ChatSession, Ended, Generated, Prefilled

EVENT_EVERY_S = 1 / 30
"""Text and progress are told at most so often."""

log = logging.getLogger(__name__)


class LoadCancelledError(Exception):
    """Ends the loading of a model that nobody waits for any more."""


class EngineWorker(QObject):
    """Carries out jobs one after the other.

    Signals:
        happened(EngineEvent)

    Thread: the engine thread, which must have an event loop; made in any thread and moved there.
    """

    happened = Signal(object)
    _save_wanted = Signal(int)

    def __init__(self, make_engine: Callable[[], ChatEngine], sessions: Path) -> None:
        super().__init__()
        self._make_engine = make_engine
        self._sessions = sessions
        self._engine: ChatEngine | None = None
        self._model: ChatModel | None = None
        self._pool: SessionPool | None = None
        self._save_wanted.connect(self._on_save_wanted, Qt.ConnectionType.QueuedConnection)

    def on_request(self, request: EngineRequest, cancel: JobCancel) -> None:
        """Carry out a job; whatever goes wrong becomes an event."""
        try:
            self._run(request, cancel)
        except LoadCancelledError:
            log.info("loading was cancelled")
        except Exception as error:
            log.exception("job failed: %s", type(request).__name__)
            self._tell_failure(request, self._explain(error))

    def _run(self, request: EngineRequest, cancel: JobCancel) -> None:
        match request:
            case LoadModel():
                self._load(request, cancel)
            case Generate():
                self._generate(request, cancel)
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
        self._model = self._engine.load_model(Path(request.path), request.n_threads, progress)
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
        session, note = self._pool.take(request.chat_id, request.n_ctx)
        self._pool.mark_dirty(request.chat_id, request.reply_id)
        stream = _Stream(self._tell, request, session)
        ended: Ended | None = None
        try:
            for event in session.reply(request, cancel):
                if isinstance(event, Ended):
                    ended = event
                else:
                    stream.take(event)
        finally:
            # What was made before an error is text a person has a right to.
            stream.flush()
        assert ended is not None
        self._tell(
            ReplyFinished(
                *(request.job_id, request.chat_id, request.reply_id, ended.finish, ended.stats, None),
                *(ended.token_ids, self._model.info.fingerprint, session.out_ids, session.n_used, session.n_ctx, note),
            )
        )
        # At the end of the queue: a reply that waits goes first.
        self._save_wanted.emit(request.chat_id)

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


class _Stream:
    """Gathers the text of one reply and passes it on often enough to look alive, seldom enough to cost nothing."""

    def __init__(self, tell: Callable[[EngineEvent], None], request: Generate, session: ChatSession) -> None:
        self._tell = tell
        self._request = request
        self._session = session
        self._text: list[str] = []
        self._n_generated = 0
        self._first_at = 0.0
        self._told_at = 0.0

    def take(self, event: Prefilled | Generated) -> None:
        """Take in one event of the session."""
        now = time.monotonic()
        if isinstance(event, Generated):
            if self._n_generated == 0:
                self._first_at = now
            self._n_generated += 1
            self._text.append(event.text)
            if now - self._told_at >= EVENT_EVERY_S:
                self.flush()
        elif now - self._told_at >= EVENT_EVERY_S or event.n_done == 0 or event.n_done == event.n_total:
            self._told_at = now
            request = self._request
            self._tell(PrefillProgress(request.job_id, request.chat_id, event.n_done, event.n_total, event.n_reused))

    def flush(self) -> None:
        """Pass on what was gathered."""
        text = "".join(self._text)
        self._text.clear()
        self._told_at = now = time.monotonic()
        if text:
            # The first token costs no time of its own: it falls out of the prompt.
            n, elapsed = self._n_generated - 1, now - self._first_at
            request = self._request
            self._tell(
                TextChunk(
                    *(request.job_id, request.chat_id, request.reply_id, text),
                    *(self._n_generated, self._session.n_used, n / elapsed if n > 0 and elapsed > 0 else 0.0),
                )
            )
