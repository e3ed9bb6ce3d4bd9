"""The left side: new chat, search, and the list of chats."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QVBoxLayout, QWidget

from app.models import ChatListModel
from app.theme import GRID, SIDEBAR_WIDTH, Theme
from app.widgets.chat_list_view import ChatListView
from app.widgets.icon_button import IconButton

_MAX_WIDTH = 360  # px, however large the text


class Sidebar(QWidget):
    """Arranges the list of chats with its search field and buttons.

    Attributes:
        chat_list: the list.

    Signals:
        new_chat_requested, hide_requested.
        search_left: Escape was pressed in the search field.
        search_changed(text): what is searched for, without blanks around it.
    """

    new_chat_requested = Signal()
    hide_requested = Signal()
    search_left = Signal()
    search_changed = Signal(str)

    def __init__(self, chats: ChatListModel, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._chats = chats
        self._theme = theme
        self._hide_button = IconButton(theme, "sidebar", self.tr("Hide chats (Ctrl+B)"), self)
        self._new_button = IconButton(theme, "plus", self.tr("New chat (Ctrl+N)"), self)
        self._search_edit = QLineEdit(self)
        self._search_edit.setPlaceholderText(self.tr("Search chats"))
        self._search_edit.setAccessibleName(self.tr("Search chats"))
        self._search_edit.setClearButtonEnabled(True)
        self._search_edit.installEventFilter(self)
        self.chat_list = ChatListView(chats, theme, self)
        self._empty_label = QLabel(self)
        self._empty_label.setProperty("quiet", True)
        self._empty_label.setWordWrap(True)
        self._empty_label.setAlignment(Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignHCenter)
        self._empty_label.setContentsMargins(2 * GRID, 3 * GRID, 2 * GRID, 0)
        self._arrange()
        self._hide_button.clicked.connect(self.hide_requested)
        self._new_button.clicked.connect(self.new_chat_requested)
        self._search_edit.textChanged.connect(self._on_search_changed)
        self._search_edit.returnPressed.connect(self.chat_list.choose_first)
        chats.modelReset.connect(self._on_chats_changed)
        chats.rowsInserted.connect(self._on_chats_changed)
        chats.rowsRemoved.connect(self._on_chats_changed)
        chats.found_changed.connect(self._on_chats_changed)
        theme.changed.connect(self._on_theme_changed)
        self._on_theme_changed()
        self._on_chats_changed()

    def focus_search(self) -> None:
        """Put the keyboard into the search field."""
        self._search_edit.setFocus()
        self._search_edit.selectAll()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave the search with Escape, go to the list with the down arrow."""
        if watched is self._search_edit and event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            if event.key() == Qt.Key.Key_Escape:
                self._search_edit.clear()
                self.search_left.emit()
                return True
            if event.key() == Qt.Key.Key_Down:
                self.chat_list.setFocus()
                return True
        return super().eventFilter(watched, event)

    def _arrange(self) -> None:
        top = QHBoxLayout()
        top.setContentsMargins(GRID, 0, GRID, 0)
        top.addWidget(self._hide_button)
        top.addStretch(1)
        top.addWidget(self._new_button)
        search = QHBoxLayout()
        search.setContentsMargins(GRID, 0, GRID, 0)
        search.addWidget(self._search_edit)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, GRID, 0, GRID)
        column.setSpacing(GRID)
        column.addLayout(top)
        column.addLayout(search)
        column.addWidget(self._empty_label)
        column.addWidget(self.chat_list, 1)

    def _on_search_changed(self, text: str) -> None:
        self.chat_list.set_search(text.strip())
        self.search_changed.emit(text.strip())
        self._on_chats_changed()

    def _on_chats_changed(self) -> None:
        is_empty = self.chat_list.n_shown() == 0
        if self._chats.rowCount() == 0:
            self._empty_label.setText(self.tr("Your chats will be listed here. Write a message to begin the first."))
        else:
            self._empty_label.setText(self.tr("No chat has this in its title or its messages."))
        self._empty_label.setVisible(is_empty)

    def _on_theme_changed(self) -> None:
        self.setFixedWidth(min(self._theme.scaled(SIDEBAR_WIDTH), _MAX_WIDTH))
