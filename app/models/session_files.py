"""The session files as a table, and how much of the disk they take."""

from __future__ import annotations

from enum import IntEnum

from PySide6.QtCore import (
    QDateTime,
    QLocale,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
    Signal,
)

from app.models.ports import Store
from app.models.table import TableModel
from app.storage.records import ListSessions, PinSession, SessionFile, SessionsListed, SetDiskBudget, WipeSessions


class Column(IntEnum):
    """Columns of the table."""

    CHAT = 0
    SIZE = 1
    USED = 2
    KEPT = 3


class SessionFilesModel(TableModel):
    """One row for each session file, the one used last at the top; the last column says, and sets, which are kept.

    Attributes:
        budget_bytes: what they may take of the disk; free_bytes: what of it is free.

    Signals:
        listed: the rows are new.

    Thread: GUI thread.
    """

    listed = Signal()

    def __init__(self, store: Store, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._store = store
        self._files: tuple[SessionFile, ...] = ()
        self.budget_bytes = self.free_bytes = 0

    @property
    def taken_bytes(self) -> int:
        """What they take together."""
        return sum(file.n_bytes for file in self._files)

    def refresh(self) -> None:
        """Ask for the files; `listed` follows."""
        self._store.submit(ListSessions())

    def set_budget(self, n_mb: int) -> None:
        """Let the files take so much of the disk; 0: as much as is reasonable."""
        self._store.submit(SetDiskBudget(n_mb << 20))

    def wipe(self, rows: list[int]) -> None:
        """Delete the files of these rows."""
        self._store.submit(WipeSessions(tuple(self._files[row].name for row in rows)))

    def take(self, event: SessionsListed) -> None:
        """Take over what storage tells."""
        self.beginResetModel()
        self._files = event.files
        self.budget_bytes, self.free_bytes = event.budget_bytes, event.free_bytes
        self.endResetModel()
        self.listed.emit()

    def n_records(self) -> int:
        """How many files there are."""
        return len(self._files)

    def titles(self) -> tuple[str, ...]:
        """The columns' titles, in the order of `Column`."""
        return (
            self.tr("Chat"),
            self.tr("Size"),
            self.tr("Last used"),
            self.tr("Keep"),
        )

    def flags(self, index: QModelIndex | QPersistentModelIndex) -> Qt.ItemFlag:
        """Return what can be done with a cell."""
        flags = super().flags(index)
        return flags | Qt.ItemFlag.ItemIsUserCheckable if index.column() == Column.KEPT else flags

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = int(Qt.ItemDataRole.DisplayRole)) -> object:
        """Return a cell's text, or whether a file is kept."""
        if not index.isValid():
            return None
        file, column = self._files[index.row()], Column(index.column())
        if role == int(Qt.ItemDataRole.CheckStateRole) and column == Column.KEPT:
            return int((Qt.CheckState.Checked if file.is_pinned else Qt.CheckState.Unchecked).value)
        if role == int(Qt.ItemDataRole.TextAlignmentRole) and column == Column.SIZE:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if role == int(Qt.ItemDataRole.DisplayRole):
            return self._text(file, column)
        return None

    def setData(
        self, index: QModelIndex | QPersistentModelIndex, value: object, role: int = int(Qt.ItemDataRole.EditRole)
    ) -> bool:
        """Keep a file whatever the budget says, or do so no longer."""
        if role != int(Qt.ItemDataRole.CheckStateRole) or index.column() != Column.KEPT:
            return False
        is_pinned = Qt.CheckState(value) == Qt.CheckState.Checked
        self._store.submit(PinSession(self._files[index.row()].name, is_pinned))
        return True

    def _text(self, file: SessionFile, column: Column) -> str:
        locale = QLocale()
        if column == Column.CHAT:
            return file.title or self.tr("(in the bin)")
        if column == Column.SIZE:
            return locale.formattedDataSize(file.n_bytes)
        if column == Column.USED:
            when = QDateTime.fromSecsSinceEpoch(int(file.used_at))
            return locale.toString(when, QLocale.FormatType.ShortFormat)
        return ""
