"""A square button that is only a drawing, tinted by the theme."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QRectF, QSize, Qt
from PySide6.QtGui import QEnterEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from app.icons import paint_icon
from app.theme import Theme

_RADIUS = 8


class IconButton(QAbstractButton):
    """A button with an icon; its name is its tooltip and what a screen reader says.

    Thread: GUI thread.
    """

    def __init__(
        self,
        theme: Theme,
        icon_name: str,
        name: str,
        parent: QWidget | None = None,
        size: int = 32,
        *,
        is_raised: bool = False,
    ) -> None:
        """Make a button.

        Args:
            theme: gives it colours and size.
            icon_name: the drawing.
            name: what it does, for the tooltip and screen readers.
            parent: the widget it stands on.
            size: px, width and height at normal text size.
            is_raised: it stands over text and has a ground of its own.
        """
        super().__init__(parent)
        self._is_raised = is_raised
        self._theme = theme
        self._icon_name = icon_name
        self._size = size
        self.set_name(name)
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)

    def set_name(self, name: str) -> None:
        """Say what the button does."""
        self.setToolTip(name)
        self.setAccessibleName(name)

    def set_icon_name(self, icon_name: str) -> None:
        """Show another drawing."""
        if icon_name != self._icon_name:
            self._icon_name = icon_name
            self.update()

    def sizeHint(self) -> QSize:
        """Return the square that the icon needs, growing with the fonts."""
        side = self._theme.scaled(self._size)
        return QSize(side, side)

    def minimumSizeHint(self) -> QSize:
        """Return the same square."""
        return self.sizeHint()

    def enterEvent(self, event: QEnterEvent) -> None:
        """Show the hover colour."""
        self.update()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        """Take the hover colour away."""
        self.update()
        super().leaveEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the ground while hovered, the focus frame and the icon."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(1, 1, -1, -1)
        is_hot = self.isEnabled() and (self.underMouse() or self.isDown())
        if self._is_raised:
            painter.setPen(self._theme.colour("strong_line"))
            painter.setBrush(self._theme.colour("hover" if is_hot else "raised"))
            painter.drawEllipse(rect)
        elif is_hot:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.colour("selected" if self.isDown() else "hover"))
            painter.drawRoundedRect(rect, _RADIUS, _RADIUS)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.colour("accent"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(rect, _RADIUS, _RADIUS)
        colour = self._theme.colour("out" if not self.isEnabled() else "text" if is_hot else "quiet")
        inset = (self.width() - self._theme.scaled(20)) / 2
        paint_icon(painter, self._icon_name, colour, QRectF(self.rect()).adjusted(inset, inset, -inset, -inset))
