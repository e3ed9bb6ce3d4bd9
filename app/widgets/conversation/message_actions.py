"""The row of actions that appears under the message that the pointer or the keyboard is on."""

from __future__ import annotations

from PySide6.QtCore import QLocale, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.models import MessageItem
from app.theme import Theme
from app.widgets.icon_button import IconButton

_BUTTON = 28  # px


class MessageActions(QWidget):
    """What can be done with one message, its versions, and how fast it was made.

    Signals:
        copy_requested: of the message shown last.
        version_requested(message_id, step), edit_requested(message_id), regenerate_requested(message_id),
        fork_requested(message_id), delete_requested(message_id), pin_requested(message_id, is_pinned),
        return_requested(message_id): bring it back into the context.
    """

    copy_requested = Signal()
    version_requested = Signal(int, int)
    edit_requested = Signal(int)
    regenerate_requested = Signal(int)
    fork_requested = Signal(int)
    delete_requested = Signal(int)
    pin_requested = Signal(int, bool)
    return_requested = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("message_actions")
        self._message_id = 0
        self._is_pinned = False
        self._previous_button = IconButton(theme, "previous", self.tr("Version before"), self, _BUTTON)
        self._version_label = QLabel(self)
        self._version_label.setProperty("quiet", True)
        self._next_button = IconButton(theme, "next", self.tr("Next version"), self, _BUTTON)
        self._copy_button = IconButton(theme, "copy", self.tr("Copy message"), self, _BUTTON)
        self._edit_button = IconButton(theme, "edit", self.tr("Write another version"), self, _BUTTON)
        self._regenerate_button = IconButton(theme, "refresh", self.tr("Make this reply again"), self, _BUTTON)
        self._fork_button = IconButton(theme, "fork", self.tr("Go on from here in a new chat"), self, _BUTTON)
        self._pin_button = IconButton(theme, "pin", "", self, _BUTTON)
        self._return_button = IconButton(theme, "bring-back", self.tr("Bring back into the context"), self, _BUTTON)
        self._delete_button = IconButton(theme, "delete", self.tr("Delete from here on"), self, _BUTTON)
        self._figures_label = QLabel(self)
        self._figures_label.setProperty("quiet", True)
        self._arrange()
        self._previous_button.clicked.connect(self._on_previous_clicked)
        self._next_button.clicked.connect(self._on_next_clicked)
        self._copy_button.clicked.connect(self._on_copy_clicked)
        self._edit_button.clicked.connect(self._on_edit_clicked)
        self._regenerate_button.clicked.connect(self._on_regenerate_clicked)
        self._fork_button.clicked.connect(self._on_fork_clicked)
        self._pin_button.clicked.connect(self._on_pin_clicked)
        self._return_button.clicked.connect(self._on_return_clicked)
        self._delete_button.clicked.connect(self._on_delete_clicked)
        self.hide()

    def show_for(self, item: MessageItem) -> None:
        """Take over the message's figures and what can be done with it."""
        self._message_id = item.id
        self._copy_button.set_icon_name("copy")
        has_versions = item.n_versions > 1
        for widget in (self._previous_button, self._version_label, self._next_button):
            widget.setVisible(has_versions)
        self._previous_button.setEnabled(item.version > 1)
        self._next_button.setEnabled(item.version < item.n_versions)
        self._version_label.setText(self.tr("{i} of {n}").format(i=item.version, n=item.n_versions))
        self._edit_button.setVisible(item.role == "user")
        self._regenerate_button.setVisible(item.role == "assistant")
        self._is_pinned = item.is_pinned
        name = self.tr("Let it leave the context") if item.is_pinned else self.tr("Keep it in the context")
        self._pin_button.set_name(name)
        self._pin_button.setVisible(not item.is_out)
        self._return_button.setVisible(item.is_out)
        self._delete_button.setVisible(item.role != "system")
        self._figures_label.setText(self._figures(item))
        self.adjustSize()

    def show_copied(self) -> None:
        """Say that the message was copied."""
        self._copy_button.set_icon_name("check")

    def _arrange(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        for widget in (
            *(self._previous_button, self._version_label, self._next_button, self._copy_button, self._edit_button),
            *(self._regenerate_button, self._fork_button, self._pin_button, self._return_button, self._delete_button),
        ):
            row.addWidget(widget)
        row.addSpacing(6)
        row.addWidget(self._figures_label)

    def _figures(self, item: MessageItem) -> str:
        if item.role != "assistant" or not item.n_tokens:
            return ""
        n = QLocale().toString(item.n_tokens)
        if not item.tok_s:
            return self.tr("{n} tokens").format(n=n)
        return self.tr("{n} tokens, {rate} per second").format(n=n, rate=QLocale().toString(item.tok_s, "f", 1))

    def _on_previous_clicked(self) -> None:
        self.version_requested.emit(self._message_id, -1)

    def _on_next_clicked(self) -> None:
        self.version_requested.emit(self._message_id, 1)

    def _on_copy_clicked(self) -> None:
        self.copy_requested.emit()

    def _on_edit_clicked(self) -> None:
        self.edit_requested.emit(self._message_id)

    def _on_regenerate_clicked(self) -> None:
        self.regenerate_requested.emit(self._message_id)

    def _on_fork_clicked(self) -> None:
        self.fork_requested.emit(self._message_id)

    def _on_pin_clicked(self) -> None:
        self.pin_requested.emit(self._message_id, not self._is_pinned)

    def _on_return_clicked(self) -> None:
        self.return_requested.emit(self._message_id)

    def _on_delete_clicked(self) -> None:
        self.delete_requested.emit(self._message_id)
