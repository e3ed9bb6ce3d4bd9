"""The row above the conversation: its title, the menu, and what the sidebar offers while that is hidden."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QWidget

from app.theme import GRID, Theme
from app.widgets.elided_label import ElidedLabel
from app.widgets.icon_button import IconButton


class ChatHeader(QWidget):
    """Shows the title of the open chat and opens the menu of the window.

    Signals:
        sidebar_requested: show the list of chats.
        new_chat_requested.
    """

    sidebar_requested = Signal()
    new_chat_requested = Signal()

    def __init__(self, theme: Theme, menu: QMenu, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("chat_header")
        self._menu = menu
        self._sidebar_button = IconButton(theme, "sidebar", self.tr("Show chats (Ctrl+B)"), self)
        self._new_button = IconButton(theme, "plus", self.tr("New chat (Ctrl+N)"), self)
        self._title_label = ElidedLabel(self)
        self._menu_button = IconButton(theme, "menu", self.tr("Menu"), self)
        row = QHBoxLayout(self)
        row.setContentsMargins(GRID, GRID, GRID, 0)
        row.setSpacing(4)
        row.addWidget(self._sidebar_button)
        row.addWidget(self._new_button)
        row.addSpacing(GRID)
        row.addWidget(self._title_label, 1)
        row.addWidget(self._menu_button)
        self._sidebar_button.clicked.connect(self.sidebar_requested)
        self._new_button.clicked.connect(self.new_chat_requested)
        self._menu_button.clicked.connect(self._on_menu_clicked)

    def set_title(self, title: str) -> None:
        """Show the title of another chat."""
        self._title_label.setText(title)

    def set_sidebar_visible(self, is_visible: bool) -> None:
        """Offer what the sidebar offers only while it is hidden."""
        self._sidebar_button.setVisible(not is_visible)
        self._new_button.setVisible(not is_visible)

    def _on_menu_clicked(self) -> None:
        button = self._menu_button
        self._menu.popup(button.mapToGlobal(QPoint(button.width() - self._menu.sizeHint().width(), button.height())))
