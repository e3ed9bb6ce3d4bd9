"""The row of actions that appears under the message that the pointer or the keyboard is on."""

from __future__ import annotations

from PySide6.QtCore import QLocale, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.models import MessageItem
from app.theme import Theme
from app.widgets.icon_button import IconButton


class MessageActions(QWidget):
    """Copy, regenerate, and how fast the reply was made.

    Signals:
        copy_requested, regenerate_requested: for the message shown last.
    """

    copy_requested = Signal()
    regenerate_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("message_actions")
        self._copy_button = IconButton(theme, "copy", self.tr("Copy message"), self, 28)
        self._regenerate_button = IconButton(theme, "refresh", self.tr("Make this reply again"), self, 28)
        self._figures_label = QLabel(self)
        self._figures_label.setProperty("quiet", True)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        row.addWidget(self._copy_button)
        row.addWidget(self._regenerate_button)
        row.addSpacing(6)
        row.addWidget(self._figures_label)
        self._copy_button.clicked.connect(self._on_copy_clicked)
        self._regenerate_button.clicked.connect(self._on_regenerate_clicked)
        self.hide()

    def show_for(self, item: MessageItem, *, can_regenerate: bool) -> None:
        """Take over the message's figures and what can be done with it."""
        self._copy_button.set_icon_name("copy")
        self._regenerate_button.setVisible(can_regenerate)
        self._figures_label.setText(self._figures(item))
        self.adjustSize()

    def show_copied(self) -> None:
        """Say that the message was copied."""
        self._copy_button.set_icon_name("check")

    def _figures(self, item: MessageItem) -> str:
        if item.role != "assistant" or not item.n_tokens:
            return ""
        n = QLocale().toString(item.n_tokens)
        if not item.tok_s:
            return self.tr("{n} tokens").format(n=n)
        return self.tr("{n} tokens, {rate} per second").format(n=n, rate=QLocale().toString(item.tok_s, "f", 1))

    def _on_copy_clicked(self) -> None:
        self.copy_requested.emit()

    def _on_regenerate_clicked(self) -> None:
        self.regenerate_requested.emit()
