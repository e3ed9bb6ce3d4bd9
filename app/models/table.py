"""What the models that are tables do alike."""

from __future__ import annotations

from abc import abstractmethod

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt


class TableModel(QAbstractTableModel):
    """A table of records, a row for each, with a title over each column.

    Thread: GUI thread.
    """

    @abstractmethod
    def n_records(self) -> int:
        """How many records there are."""

    @abstractmethod
    def titles(self) -> tuple[str, ...]:
        """The columns' titles, in their order."""

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:  # noqa: B008
        """Return the number of records."""
        return 0 if parent.isValid() else self.n_records()

    def columnCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:  # noqa: B008
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self.titles())

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = int(Qt.ItemDataRole.DisplayRole)
    ) -> object:
        """Return a column's title."""
        if role != int(Qt.ItemDataRole.DisplayRole) or orientation != Qt.Orientation.Horizontal:
            return None
        return self.titles()[section]
