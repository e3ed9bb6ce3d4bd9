"""Collects cyclic garbage on the GUI thread alone.

Python collects on whichever thread happens to allocate. A widget in a cycle would then be torn down by the engine's or a
lexer's thread while Qt still paints it.
"""

from __future__ import annotations

import gc

from PySide6.QtCore import QAbstractEventDispatcher, QObject


class GarbageCollector(QObject):
    """Takes the place of Python's automatic collection until it is closed: looks whenever the event loop has nothing to do.

    Thread: GUI thread.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._was_enabled = gc.isenabled()
        gc.disable()
        self._dispatcher = QAbstractEventDispatcher.instance()
        self._dispatcher.aboutToBlock.connect(self._on_about_to_block)

    def close(self) -> None:
        """Give the work back to Python."""
        self._dispatcher.aboutToBlock.disconnect(self._on_about_to_block)
        if self._was_enabled:
            gc.enable()

    def _on_about_to_block(self) -> None:
        collect_due()


def collect_due() -> None:
    """Collect the oldest generation whose threshold is passed, by the counts that Python keeps in any case."""
    for generation in (2, 1, 0):
        threshold = gc.get_threshold()[generation]
        if threshold and gc.get_count()[generation] > threshold:
            gc.collect(generation)
            return
