"""The bar over the conversation that finds text in it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QLineEdit, QWidget

from app.theme import GRID, Theme
from app.widgets.conversation import ConversationView
from app.widgets.icon_button import IconButton


class FindBar(QFrame):
    """A field with buttons for the next place and the one before; hidden until it is asked for.

    Signals:
        closed: the search is over.

    Thread: GUI thread.
    """

    closed = Signal()

    def __init__(self, view: ConversationView, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("find_bar")
        self._view = view
        self._edit = QLineEdit(self)
        self._edit.setPlaceholderText(self.tr("Find in this chat"))
        self._edit.setAccessibleName(self.tr("Find in this chat"))
        self._edit.setClearButtonEnabled(True)
        self._edit.installEventFilter(self)
        self._label = QLabel(self)
        self._label.setProperty("quiet", True)
        before = IconButton(theme, "previous", self.tr("Place before (Shift+F3)"), self)
        after = IconButton(theme, "next", self.tr("Next place (F3)"), self)
        close = IconButton(theme, "close", self.tr("Close"), self)
        row = QHBoxLayout(self)
        row.setContentsMargins(3 * GRID, 0, 3 * GRID, GRID)
        row.setSpacing(GRID)
        row.addWidget(self._edit, 1)
        for widget in (self._label, before, after, close):
            row.addWidget(widget)
        self._edit.textChanged.connect(self._on_text_changed)
        before.clicked.connect(self.previous)
        after.clicked.connect(self.next)
        close.clicked.connect(self.close_search)
        self.hide()

    def open(self) -> None:
        """Show the bar and put the keyboard into its field."""
        was_hidden = self.isHidden()
        self.show()
        self._edit.setFocus()
        self._edit.selectAll()
        if was_hidden:
            self._on_text_changed(self._edit.text())

    def next(self) -> None:
        """Go to the next place."""
        self._step(1)

    def previous(self) -> None:
        """Go to the place before."""
        self._step(-1)

    def close_search(self) -> None:
        """Hide the bar and take the marks away."""
        self.hide()
        self._view.find_text("")
        self.closed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Close with Escape, which is also a shortcut of the window; step with Enter and Shift+Enter."""
        if watched is self._edit and isinstance(event, QKeyEvent):
            is_escape = event.key() == Qt.Key.Key_Escape
            if event.type() == QEvent.Type.ShortcutOverride and is_escape:
                event.accept()
                return True
            if event.type() == QEvent.Type.KeyPress and is_escape:
                self.close_search()
                return True
            if event.type() == QEvent.Type.KeyPress and event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                self._step(-1 if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else 1)
                return True
        return super().eventFilter(watched, event)

    def _step(self, step: int) -> None:
        if self.isHidden():
            self.open()
        elif self._edit.text():
            self._say(self._view.find_step(step))

    def _on_text_changed(self, text: str) -> None:
        self._say(self._view.find_text(text) or not text)

    def _say(self, is_found: bool) -> None:
        self._label.setText("" if is_found else self.tr("Not found"))
