"""The GUI thread's side of the catalogue thread, and the object that lives in that thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from platformdirs import user_cache_dir
from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, QThread, QTimer, Signal

from app.bridge.cancel import JobCancel
from app.bridge.messages import ModelsFound, ScanModels
from app.bridge.places import watched_folders

SETTLE_MS = 500
WATCHED_MAX = 256
"""Folders that are watched; systems allow some thousands for all programs together."""
CACHE_NAME = "models.json"

log = logging.getLogger(__name__)


class ModelScanner(Protocol):
    """Finds models; `app.bridge.catalogue.Catalogue` does."""

    def scan(self, folders: tuple[str, ...], is_cancelled: Callable[[], bool]) -> Iterator[ModelsFound]:
        """Yield what there is, and again when more is known of it."""


def local_catalogue() -> ModelScanner:
    """Make the scanner of this program; called in the catalogue thread."""
    from app.bridge.catalogue import Catalogue

    return Catalogue(Path(user_cache_dir("causerie", appauthor=False)) / CACHE_NAME)


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
        self._folders: tuple[str, ...] = ()
        self._watcher: QFileSystemWatcher | None = None
        self._settle_timer: QTimer | None = None

    def on_request(self, request: ScanModels) -> None:
        """Look for models, and again whenever a folder of them changes."""
        self._folders = request.folders
        self._watch()  # before looking: what comes while we look is heard of
        self._scan()

    def on_finished(self) -> None:
        """Let go of what belongs to the thread that ends."""
        self._watcher = self._settle_timer = None

    def _on_folder_changed(self, path: str) -> None:
        """Wait until the change is over: a file that is copied changes its folder once, and then itself."""
        if self._settle_timer is not None:
            self._settle_timer.start()

    def _on_settled(self) -> None:
        self._watch()
        self._scan()

    def _watch(self) -> None:
        """Hear of changes in the folders that hold models, or could."""
        if self._watcher is None or self._settle_timer is None:
            self._watcher = QFileSystemWatcher()
            self._watcher.directoryChanged.connect(self._on_folder_changed)
            self._settle_timer = QTimer()
            self._settle_timer.setSingleShot(True)
            self._settle_timer.setInterval(SETTLE_MS)
            self._settle_timer.timeout.connect(self._on_settled)
        new = set(watched_folders(self._folders)[:WATCHED_MAX]) - set(self._watcher.directories())
        if new:
            self._watcher.addPaths(sorted(new))

    def _scan(self) -> None:
        if self._cancel.is_set():
            return
        try:
            if self._scanner is None:
                self._scanner = self._make_scanner()
            for found in self._scanner.scan(self._folders, self._cancel.is_set):
                self.found.emit(found)
        except (OSError, ImportError) as error:
            log.warning("models not listed: %s", error)
            self.found.emit(ModelsFound((), 0))


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
        self._thread.finished.connect(self._worker.on_finished)
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
