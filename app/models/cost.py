"""What sending the draft will cost: asked of the engine a moment after the last key, shown until it is sent."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from app.bridge.context_view import CostKnown
from app.bridge.messages import EstimateCost, ReplyFinished
from app.models.ports import Engine

ASK_MS = 300
"""The cost is asked for so long after the last key."""

MIN_MEASURED = 32
"""Tokens that a prompt must have computed to tell how fast this machine is."""


class CostEstimate(QObject):
    """The cost of the draft of the open chat.

    Attributes:
        known: of the draft as it stands; None while it is empty or not known.

    Signals:
        changed: `known` is another.

    Thread: GUI thread.
    """

    changed = Signal()

    def __init__(self, engine: Engine, question: Callable[[str], EstimateCost | None], parent: QObject) -> None:
        """Ask an engine.

        Args:
            engine: what is asked.
            question: makes the question of a draft; None where there is nothing to ask.
            parent: owns this.
        """
        super().__init__(parent)
        self.known: CostKnown | None = None
        self._engine, self._question = engine, question
        self._text = ""
        self._tok_s = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ASK_MS)
        self._timer.timeout.connect(self._on_timer_timeout)

    def set_draft(self, text: str) -> None:
        """Take over the text of the composer."""
        self._text = text.strip()
        if self._text:
            self._timer.start()
        else:
            self._timer.stop()
            self._set(None)

    def take(self, event: CostKnown) -> None:
        """Take in what the engine says; an answer to an older draft is dropped."""
        if self._text and event.draft == self._text:
            self._set(event)

    def measure(self, event: ReplyFinished) -> None:
        """Learn from a reply how fast prompts are computed here."""
        stats = event.stats
        if stats.n_computed >= MIN_MEASURED and stats.prefill_ms > 0:
            self._tok_s = 1000 * stats.n_computed / stats.prefill_ms

    @property
    def seconds(self) -> float:
        """Seconds until the first word, 0 where no prompt was measured yet."""
        return self.known.cost.n_to_compute / self._tok_s if self.known is not None and self._tok_s else 0.0

    def _on_timer_timeout(self) -> None:
        question = self._question(self._text)
        if question is not None:
            self._engine.estimate(question)

    def _set(self, known: CostKnown | None) -> None:
        if known != self.known:
            self.known = known
            self.changed.emit()
