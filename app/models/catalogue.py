"""The models that were found, as a table for the picker."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from PySide6.QtCore import QLocale, QModelIndex, QObject, QPersistentModelIndex, Qt, Signal

from app.bridge.messages import ModelEntry
from app.models.table import TableModel


class Column(IntEnum):
    """Columns of the table."""

    NAME = 0
    ARCH = 1
    PARAMS = 2
    QUANT = 3
    CONTEXT = 4
    SIZE = 5
    MEMORY = 6
    NOTE = 7


class ModelCatalogue(TableModel):
    """One row for each model file that was found, damaged ones included.

    Attributes:
        free_bytes: memory free when the folders were last read; 0 where the system does not say.
        is_refreshing: the folders are being read.

    Signals:
        refresh_requested: the folders should be read (off the GUI thread).
        refreshed: the rows are new.
        details_requested(path), verify_requested(path): a model's file should be read, or hashed.
        details_read(ModelDetails), verify_progressed(path, share), verified(ModelVerified): what came of it.

    Thread: GUI thread.
    """

    refresh_requested = Signal()
    refreshed = Signal()
    details_requested = Signal(str)
    details_read = Signal(object)
    verify_requested = Signal(str)
    verify_progressed = Signal(str, float)
    verified = Signal(object)

    EntryRole = int(Qt.ItemDataRole.UserRole) + 1

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.free_bytes = 0
        self.is_refreshing = False
        self._entries: list[ModelEntry] = []

    def entry(self, row: int) -> ModelEntry:
        """Return the model of a row."""
        return self._entries[row]

    def entries(self) -> tuple[ModelEntry, ...]:
        """Return all models in the order shown."""
        return tuple(self._entries)

    def refresh(self) -> None:
        """Ask for the folders to be read again; `refreshed` follows."""
        if not self.is_refreshing:
            self.is_refreshing = True
            self.refresh_requested.emit()

    def set_entries(self, entries: Iterable[ModelEntry], free_bytes: int) -> None:
        """Take over what was found: sound files first, then by name."""
        self.beginResetModel()
        self._entries = sorted(entries, key=_sound_first)
        self.free_bytes = free_bytes
        self.endResetModel()
        self.is_refreshing = False
        self.refreshed.emit()

    def n_records(self) -> int:
        """How many models there are."""
        return len(self._entries)

    def titles(self) -> tuple[str, ...]:
        """The columns' titles, in the order of `Column`."""
        return (
            self.tr("Model"),
            self.tr("Architecture"),
            self.tr("Parameters"),
            self.tr("Quantisation"),
            self.tr("Trained context"),
            self.tr("File size"),
            self.tr("Memory needed"),
            self.tr("Note"),
        )

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = int(Qt.ItemDataRole.DisplayRole)) -> object:
        """Return a cell's text, its alignment, or with `EntryRole` the whole entry."""
        if not index.isValid() or not 0 <= index.row() < len(self._entries):
            return None
        entry = self._entries[index.row()]
        column = Column(index.column())
        if role == self.EntryRole:
            return entry
        if role == int(Qt.ItemDataRole.ToolTipRole):
            return entry.problem or str(entry.path)
        if role == int(Qt.ItemDataRole.TextAlignmentRole) and column in _NUMBERS:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if role == int(Qt.ItemDataRole.DisplayRole):
            return self._text(entry, column)
        return None

    def _text(self, entry: ModelEntry, column: Column) -> str:
        locale = QLocale()
        if column == Column.NAME:
            return entry.name
        if column == Column.ARCH:
            return entry.arch
        if column == Column.PARAMS:
            return short_count(entry.n_params) if entry.n_params else ""
        if column == Column.QUANT:
            return entry.quant
        if column == Column.CONTEXT:
            return locale.toString(entry.n_ctx_train) if entry.n_ctx_train else ""
        if column == Column.SIZE:
            return locale.formattedDataSize(entry.size_bytes) if entry.size_bytes else ""
        if column == Column.MEMORY:
            return locale.formattedDataSize(entry.need_bytes) if entry.need_bytes else ""
        return entry.problem or entry.note


_NUMBERS = (Column.PARAMS, Column.CONTEXT, Column.SIZE, Column.MEMORY)


def short_count(n: int) -> str:
    """Return a count of weights as people write it: 135 M, 1.2 B."""
    if n >= 999_500_000:
        return f"{n / 1e9:.1f} B"
    if n >= 999_500:
        return f"{n / 1e6:.0f} M"
    return f"{n / 1e3:.0f} K"


def _sound_first(entry: ModelEntry) -> tuple[bool, str, str]:
    return (bool(entry.problem), entry.name.casefold(), str(entry.path))
