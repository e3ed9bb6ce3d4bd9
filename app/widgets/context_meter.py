"""The ring that shows how much of the model's context is used."""

from __future__ import annotations

from PySide6.QtCore import QLocale, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.models import GenerationState
from app.theme import Theme

_FULL_TURN = 360 * 16  # Qt counts sixteenths of a degree
_TOP = 90 * 16


class ContextMeter(QAbstractButton):
    """A ring whose filled part is the used share of the context.

    Thread: GUI thread.
    """

    def __init__(self, generation: GenerationState, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("context_meter")
        self._generation = generation
        self._theme = theme
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        generation.changed.connect(self._on_generation_changed)
        theme.changed.connect(self.updateGeometry)
        self._on_generation_changed()

    @property
    def share(self) -> float:
        """Used share of the context, 0 to 1."""
        state = self._generation
        return min(state.n_used / state.n_ctx, 1.0) if state.n_ctx else 0.0

    def text_of_use(self) -> str:
        """Return how full the context is, as a sentence."""
        state = self._generation
        if not state.n_ctx:
            return self.tr("No context yet: no model is loaded.")
        number = QLocale().toString
        return self.tr("{used} of {all} tokens of the context are used ({percent} %).").format(
            used=number(state.n_used), all=number(state.n_ctx), percent=round(100 * self.share)
        )

    def sizeHint(self) -> QSize:
        """Return the size of the ring with room to press it, growing with the fonts."""
        side = self._theme.scaled(32)
        return QSize(side, side)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the ring."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect())
        if self.underMouse() or self.hasFocus():
            painter.setPen(QPen(self._theme.colour("accent"), 1.5) if self.hasFocus() else Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("hover"))
            painter.drawRoundedRect(rect.adjusted(1, 1, -1, -1), 8, 8)
        side = self._theme.scaled(16)
        ring = QRectF(0, 0, side, side)
        ring.moveCenter(rect.center())
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(self._theme.colour("line"), 2.5))
        painter.drawEllipse(ring)
        if self.share > 0:
            painter.setPen(QPen(self._theme.colour("accent"), 2.5, Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
            painter.drawArc(ring, _TOP, -max(round(_FULL_TURN * self.share), 1))

    def _on_generation_changed(self) -> None:
        text = self.text_of_use()
        self.setToolTip(text)
        self.setAccessibleName(self.tr("Context"))
        self.setAccessibleDescription(text)
        self.update()
