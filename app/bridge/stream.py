"""One reply's way from the engine to the window: often enough to look alive, seldom enough to cost nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.bridge.messages import EngineEvent, Generate, PrefillProgress, ReplyFinished, TextChunk, UserError
from app.bridge.port import Broken, ChatSession, Ended, Generated, PortEvent, Prefilled

EVENT_EVERY_S = 1 / 30
"""Text and progress are told at most so often."""

log = logging.getLogger(__name__)


class ReplyStream:
    """Gathers what the engine tells of one reply and passes it on.

    Args:
        tell: told every event.
        request: what was asked.
        session: where it is made.
        model_fp: of the model that makes it.
        note: something about the memory that a person should know.
        explain: turns an error into what a person reads.
        ended: called with the chat when all was told.

    Thread: the engine's, whichever makes the reply.
    """

    def __init__(
        self,
        tell: Callable[[EngineEvent], None],
        request: Generate,
        session: ChatSession,
        model_fp: str,
        note: str,
        explain: Callable[[Exception], UserError],
        ended: Callable[[int], None],
    ) -> None:
        self._tell, self._request, self._session = tell, request, session
        self._model_fp, self._note, self._explain, self._ended = model_fp, note, explain, ended
        self._text: list[str] = []
        self._n_generated = 0
        self._first_at = self._told_at = 0.0

    def take(self, event: PortEvent) -> None:
        """Take in one event of the session."""
        now = time.monotonic()
        request = self._request
        match event:
            case Generated():
                if self._n_generated == 0:
                    self._first_at = now
                self._n_generated += 1
                self._text.append(event.text)
                if now - self._told_at >= EVENT_EVERY_S:
                    self._flush()
            case Prefilled():
                if now - self._told_at >= EVENT_EVERY_S or event.n_done in (0, event.n_total):
                    self._told_at = now
                    self._tell(
                        PrefillProgress(request.job_id, request.chat_id, event.n_done, event.n_total, event.n_reused)
                    )
            case Ended():
                self._flush()
                session = self._session
                self._tell(
                    ReplyFinished(
                        *(request.job_id, request.chat_id, request.reply_id, event.finish, event.stats, None),
                        *(event.token_ids, self._model_fp, session.out_ids, session.n_used, session.n_ctx, self._note),
                        record=event.record,
                    )
                )
                self._ended(request.chat_id)
            case Broken():
                # What was made before an error is text a person has a right to.
                self._flush()
                log.error("reply failed", exc_info=event.error)
                error = self._explain(event.error)
                self._tell(ReplyFinished(request.job_id, request.chat_id, request.reply_id, "failed", error=error))
                self._ended(request.chat_id)

    def _flush(self) -> None:
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
