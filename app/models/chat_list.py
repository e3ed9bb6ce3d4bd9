"""The list of chats, newest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from app.storage.records import ChatRecord


@dataclass(frozen=True, slots=True)
class ChatRow:
    """One chat as the list shows it.

    Attributes:
        used_at: seconds since the epoch of the last message; the list is ordered by it.
        is_generating: a reply is being made, or waits for its turn.
        is_unread: a reply ended while another chat was open.
    """

    chat_id: int
    title: str
    used_at: float
    is_generating: bool = False
    is_unread: bool = False
    is_pinned: bool = False

    @classmethod
    def of(cls, chat: ChatRecord) -> ChatRow:
        """Return a stored chat as the list shows it."""
        return cls(chat.id, chat.title, chat.used_at, is_unread=chat.is_unread, is_pinned=chat.is_pinned)


class ChatListModel(QAbstractListModel):
    """Chats as rows of one column, the one used last at the top.

    Attributes:
        searched, found_ids: the chats that have a message with all words of the text searched for last.

    Signals:
        found_changed: those are others.

    Thread: GUI thread.
    """

    found_changed = Signal()

    TitleRole = int(Qt.ItemDataRole.DisplayRole)
    ChatIdRole = int(Qt.ItemDataRole.UserRole) + 1
    UsedAtRole = int(Qt.ItemDataRole.UserRole) + 2
    GeneratingRole = int(Qt.ItemDataRole.UserRole) + 3
    UnreadRole = int(Qt.ItemDataRole.UserRole) + 4
    PinnedRole = int(Qt.ItemDataRole.UserRole) + 5

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[ChatRow] = []
        self.searched = ""
        self.found_ids: frozenset[int] = frozenset()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:  # noqa: B008
        """Return the number of chats."""
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = int(Qt.ItemDataRole.DisplayRole)) -> object:
        """Return what a row shows for a role, None for roles that are not known."""
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        row = self._rows[index.row()]
        if role in (self.TitleRole, int(Qt.ItemDataRole.ToolTipRole)):
            return row.title
        if role == self.ChatIdRole:
            return row.chat_id
        if role == self.UsedAtRole:
            return row.used_at
        if role == self.GeneratingRole:
            return row.is_generating
        if role == self.UnreadRole:
            return row.is_unread
        if role == self.PinnedRole:
            return row.is_pinned
        return None

    def row_of(self, chat_id: int) -> int:
        """Return the row of a chat, or -1."""
        return next((i for i, row in enumerate(self._rows) if row.chat_id == chat_id), -1)

    def chat(self, chat_id: int) -> ChatRow | None:
        """Return a chat's row, or None where the list has none."""
        i = self.row_of(chat_id)
        return self._rows[i] if i >= 0 else None

    def rows(self) -> tuple[ChatRow, ...]:
        """Return all chats in the order shown."""
        return tuple(self._rows)

    def set_rows(self, rows: Iterable[ChatRow]) -> None:
        """Replace the whole list."""
        self.beginResetModel()
        self._rows = sorted(rows, key=_newest_first)
        self.endResetModel()

    def set_found(self, text: str, chat_ids: frozenset[int]) -> None:
        """Take over which chats have a message with all words of a text."""
        self.searched, self.found_ids = text, chat_ids
        self.found_changed.emit()

    def put(self, row: ChatRow) -> None:
        """Add a chat, or change the one with its id and move it to its place."""
        old = self.row_of(row.chat_id)
        if old < 0:
            new = self._place(row, self._rows)
            self.beginInsertRows(QModelIndex(), new, new)
            self._rows.insert(new, row)
            self.endInsertRows()
            return
        new = self._place(row, self._rows[:old] + self._rows[old + 1 :])
        if new != old:
            # Qt counts the target before the row leaves its old place.
            self.beginMoveRows(QModelIndex(), old, old, QModelIndex(), new if new < old else new + 1)
            self._rows.insert(new, self._rows.pop(old))
            self.endMoveRows()
        if self._rows[new] != row:
            self._rows[new] = row
            index = self.index(new)
            self.dataChanged.emit(index, index)

    def remove(self, chat_id: int) -> ChatRow | None:
        """Take a chat out of the list and return its row, None where there was none."""
        i = self.row_of(chat_id)
        if i < 0:
            return None
        self.beginRemoveRows(QModelIndex(), i, i)
        row = self._rows.pop(i)
        self.endRemoveRows()
        return row

    @staticmethod
    def _place(row: ChatRow, rows: list[ChatRow]) -> int:
        key = _newest_first(row)
        return next((i for i, other in enumerate(rows) if _newest_first(other) > key), len(rows))


def _newest_first(row: ChatRow) -> tuple[float, int]:
    return (-row.used_at, -row.chat_id)
