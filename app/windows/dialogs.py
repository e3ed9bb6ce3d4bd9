"""The windows that open over the main one, each made when it is asked for."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QDialog, QWidget

from app.models import ChatController
from app.settings import Settings
from app.widgets.notice_bar import NoticeBar
from app.widgets.shortcut_help import ShortcutHelp
from app.windows.inspector import Inspector
from app.windows.memory_window import MemoryWindow


class Dialogs(QObject):
    """Opens them.

    Thread: GUI thread.
    """

    def __init__(self, controller: ChatController, settings: Settings, notice: NoticeBar, window: QWidget) -> None:
        super().__init__(window)
        self._controller, self._settings, self._notice, self._window = controller, settings, notice, window

    def show_shortcuts(self) -> None:
        """Show all actions with their keys."""
        self._open(ShortcutHelp(self._window))

    def show_memory(self) -> None:
        """Show the session files, and how much they may take."""
        self._open(MemoryWindow(self._controller, self._settings, self._window))

    def show_inspector(self) -> None:
        """Show what is in the context of the open chat."""
        self._open(Inspector(self._controller, self._window))

    def show_context(self, text: str) -> None:
        """Show what is in the context, or for a chat that has none yet how large it is."""
        if self._controller.conversation.chat_id is None:
            self._notice.say(text)
        else:
            self.show_inspector()

    def _open(self, dialog: QDialog) -> None:
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()
