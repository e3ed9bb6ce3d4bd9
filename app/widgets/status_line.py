"""The quiet line under the composer: what was ready, what is computed, how fast text is made."""

from __future__ import annotations

from PySide6.QtCore import QLocale, Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.models import GenerationState, Phase
from app.widgets.elided_label import ElidedLabel


class StatusLine(QWidget):
    """Shows a `GenerationState` in words; at the left what happens, at the right the figures.

    Thread: GUI thread.
    """

    def __init__(self, generation: GenerationState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("status_line")
        self._generation = generation
        self._left_label = ElidedLabel(self)
        self._right_label = QLabel(self)
        for label in (self._left_label, self._right_label):
            label.setProperty("quiet", True)
            label.setTextFormat(Qt.TextFormat.PlainText)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._left_label, 1)
        row.addWidget(self._right_label)
        generation.changed.connect(self._on_generation_changed)
        self._on_generation_changed()

    @property
    def texts(self) -> tuple[str, str]:
        """What stands at the left and at the right."""
        return self._left_label.text(), self._right_label.text()

    def _on_generation_changed(self) -> None:
        is_error = bool(self._generation.error)
        if self._left_label.property("danger") != is_error:
            self._left_label.setProperty("danger", is_error)
            self._left_label.style().unpolish(self._left_label)
            self._left_label.style().polish(self._left_label)
        self._left_label.setText(self._generation.error or self._what())
        self._right_label.setText(self._figures())

    def _what(self) -> str:
        state = self._generation
        number = QLocale().toString
        if state.phase == Phase.LOADING:
            return self.tr("Loading {name}: {percent} %").format(
                name=state.model_name, percent=round(100 * state.load_fraction)
            )
        if state.phase == Phase.STOPPING:
            return self.tr("Stopping…")
        if state.phase == Phase.PREFILL and state.n_to_compute:
            return self.tr("{ready} tokens ready, {done} of {all} computed").format(
                ready=number(state.n_reused), done=number(state.n_computed), all=number(state.n_to_compute)
            )
        if state.n_draft and state.phase == Phase.IDLE:
            return self._cost()
        if state.note:
            return state.note
        if state.phase == Phase.NO_MODEL:
            return self.tr("No model is loaded")
        if state.n_computed and not state.n_reused:
            return self.tr("{done} tokens computed").format(done=number(state.n_computed))
        if state.n_reused:
            return self.tr("{ready} tokens were ready, {done} computed").format(
                ready=number(state.n_reused), done=number(state.n_computed)
            )
        return ""

    def _cost(self) -> str:
        """What sending the draft costs."""
        state, number = self._generation, QLocale().toString
        if state.n_left < 0:
            return self.tr("{n} tokens: that does not fit into the context").format(n=number(state.n_draft))
        text = self.tr("{n} tokens; {ready} of {all} tokens ready").format(
            n=number(state.n_draft), ready=number(state.n_ready), all=number(state.n_ready + state.n_missing)
        )
        if state.cost_s >= 0.05:
            text = self.tr("{text}, about {s} s").format(text=text, s=QLocale().toString(state.cost_s, "f", 1))
        if state.n_leaving:
            return self.tr("{text}; {n} messages leave the context").format(text=text, n=state.n_leaving)
        return self.tr("{text}; {n} left").format(text=text, n=number(state.n_left))

    def _figures(self) -> str:
        state = self._generation
        if not state.n_generated or state.phase in (Phase.NO_MODEL, Phase.LOADING, Phase.PREFILL):
            return ""
        return self.tr("{n} tokens, {rate} per second").format(
            n=QLocale().toString(state.n_generated), rate=QLocale().toString(state.tok_s, "f", 1)
        )
