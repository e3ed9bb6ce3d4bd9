"""What was deleted and can come back."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from app.models.ports import Store
from app.storage.records import EmptyBin, UndoDelete


class Bin(QObject):
    """Counts the deletions that can be undone; storage keeps them.

    Attributes:
        n: how many.

    Signals:
        changed: `n` is another.

    Thread: GUI thread.
    """

    changed = Signal()

    def __init__(self, store: Store, parent: QObject) -> None:
        super().__init__(parent)
        self.n = 0
        self._store = store

    def add(self, n: int = 1) -> None:
        """Note further deletions."""
        self.n += n
        self.changed.emit()

    def undo(self) -> None:
        """Bring back what was deleted last; it is shown as soon as it is read."""
        if self.n:
            self.add(-1)
            self._store.submit(UndoDelete())

    def empty(self) -> None:
        """Delete for good what is in the bin, session files included."""
        self.add(-self.n)
        self._store.submit(EmptyBin())
