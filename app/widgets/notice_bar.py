"""One line over the conversation's end that says something and offers one thing to do about it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.theme import GRID, Theme
from app.widgets.icon_button import IconButton

_SHOWN_MS = 10_000
_MAX_CHARS = 400
_MAX_WIDTH = 600  # px


class NoticeBar(QFrame):
    """Says one sentence for a while; a new one takes the place of the old.

    Attributes:
        key: what `show_notice` was given.

    Signals:
        accepted(key): its button was pressed; `key` is what `show_notice` was given.
    """

    accepted = Signal(str)

    def __init__(self, theme: Theme, above: QWidget, parent: QWidget) -> None:
        """Stand above a widget of the window that is the parent."""
        super().__init__(parent)
        self.setObjectName("notice_bar")
        self._above = above
        above.installEventFilter(self)
        self.key = ""
        self._label = QLabel(self)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setWordWrap(True)
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._button = QPushButton(self)
        self._close_button = IconButton(theme, "close", self.tr("Close"), self, 28)
        row = QHBoxLayout(self)
        row.setContentsMargins(2 * GRID, GRID, GRID, GRID)
        row.setSpacing(GRID)
        row.addWidget(self._label, 1)
        row.addWidget(self._button)
        row.addWidget(self._close_button)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_SHOWN_MS)
        self._timer.timeout.connect(self._on_time_over)
        self._button.clicked.connect(self._on_button_clicked)
        self._close_button.clicked.connect(self.hide)
        self.hide()

    @property
    def text(self) -> str:
        """The sentence shown."""
        return self._label.text()

    def show_notice(self, text: str, button_text: str = "", key: str = "", *, stays: bool = False) -> None:
        """Say something.

        Args:
            text: one sentence.
            button_text: what can be done about it; empty for nothing.
            key: what `accepted` says when the button is pressed.
            stays: it waits for an answer instead of going after a while.
        """
        self.key = key
        self._label.setText(text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}…")
        self._button.setText(button_text)
        self._button.setVisible(bool(button_text))
        self._timer.stop()
        if not stays:
            self._timer.start()
        self.fit()
        self.show()
        self.raise_()

    def say(self, text: str) -> None:
        """Say something that nothing can be done about."""
        self.show_notice(text)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Keep standing above the widget when it moves or grows."""
        if event.type() in (QEvent.Type.Move, QEvent.Type.Resize) and not self.isHidden():
            self.fit()
        return super().eventFilter(watched, event)

    def fit(self) -> None:
        """Take the room above the widget that it belongs to."""
        base = self._above.mapTo(self.window(), QPoint(0, 0))
        width = min(self._above.width(), _MAX_WIDTH)
        layout = self.layout()
        height = layout.heightForWidth(width) if layout is not None else 0
        height = max(height, self.minimumSizeHint().height())
        self.setGeometry(base.x() + (self._above.width() - width) // 2, base.y() - height - GRID, width, height)

    def focus_button(self) -> None:
        """Give the button the keyboard."""
        self._button.setFocus()

    def _on_button_clicked(self) -> None:
        self.hide()
        self.accepted.emit(self.key)

    def _on_time_over(self) -> None:
        if self.underMouse() or self._button.hasFocus():
            self._timer.start()
        else:
            self.hide()
