"""A label of one line that ends in "…" where there is no room for all of it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QStyle, QWidget


class ElidedLabel(QLabel):
    """Shows plain text; its tooltip has all of it while it is cut."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def minimumSizeHint(self) -> QSize:
        """Return no width at all and the height of a line."""
        return QSize(0, super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the text, cut at the right."""
        painter = QPainter(self)
        line = self.text().replace("\n", " ")
        text = self.fontMetrics().elidedText(line, Qt.TextElideMode.ElideRight, self.width())
        self.setToolTip(line if text != line else "")
        alignment = QStyle.visualAlignment(self.layoutDirection(), self.alignment())
        self.style().drawItemText(
            painter, self.rect(), int(alignment), self.palette(), self.isEnabled(), text, self.foregroundRole()
        )
