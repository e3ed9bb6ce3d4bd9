"""The GUI thread's side of the catalogue thread, and the object that lives in that thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.bridge.cancel import JobCancel
from app.bridge.messages import ModelsFound, ScanModels

log = logging.getLogger(__name__)


class ModelScanner(Protocol):
    """Finds models; `app.bridge.catalogue.Catalogue` does."""

    def scan(self, folders: tuple[str, ...], is_cancelled: Callable[[], bool]) -> ModelsFound:
        """Return what there is."""


def local_catalogue() -> ModelScanner:
    """Make the scanner of this program; called in the catalogue thread."""
    from app.bridge.catalogue import Catalogue

    return Catalogue()


class CatalogueWorker(QObject):
    """Scans when asked.

    Signals:
        found(ModelsFound)

    Thread: the catalogue thread.
    """

    found = Signal(object)

    def __init__(self, make_scanner: Callable[[], ModelScanner], cancel: JobCancel) -> None:
        super().__init__()
        self._make_scanner = make_scanner
        self._cancel = cancel
        self._scanner: ModelScanner | None = None

    def on_request(self, request: ScanModels) -> None:
        """Look for models."""
        if self._cancel.is_set():
            return
        try:
            if self._scanner is None:
                self._scanner = self._make_scanner()
            found = self._scanner.scan(request.folders, self._cancel.is_set)
        except (OSError, ImportError) as error:
            log.warning("models not listed: %s", error)
            found = ModelsFound((), 0)
        self.found.emit(found)


class CatalogueClient(QObject):
    """Starts the catalogue thread at the first scan.

    Signals:
        found(ModelsFound): in the GUI thread.

    Thread: GUI thread.
    """

    found = Signal(object)
    _requested = Signal(object)

    def __init__(
        self, make_scanner: Callable[[], ModelScanner] = local_catalogue, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._cancel = JobCancel()
        self._thread = QThread(self)
        self._thread.setObjectName("catalogue")
        self._worker = CatalogueWorker(make_scanner, self._cancel)
        self._worker.moveToThread(self._thread)
        self._requested.connect(self._worker.on_request, Qt.ConnectionType.QueuedConnection)
        self._worker.found.connect(self._on_worker_found, Qt.ConnectionType.QueuedConnection)

    def scan(self, folders: tuple[str, ...]) -> None:
        """Look for models; `found` follows."""
        if not self._thread.isRunning():
            self._thread.start()
        self._requested.emit(ScanModels(folders))

    def shutdown(self, timeout_ms: int) -> bool:
        """End the thread; returns whether it ended in time."""
        self._cancel.set()
        self._thread.quit()
        return self._thread.wait(timeout_ms)

    def _on_worker_found(self, found: ModelsFound) -> None:
        self.found.emit(found)
