"""The GUI thread's side of the catalogue thread, and the object that lives in that thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from platformdirs import user_cache_dir
from PySide6.QtCore import QFileSystemWatcher, QObject, Qt, QThread, QTimer, Signal

from app.bridge.cancel import JobCancel
from app.bridge.messages import ModelDetails, ModelsFound, ModelVerified, ScanModels
from app.bridge.places import watched_folders

PROGRESS_STEP = 0.01
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
        details_read(ModelDetails), verify_progressed(path, share), verified(ModelVerified)

    Thread: the catalogue thread.
    """

    found = Signal(object)
    details_read = Signal(object)
    verify_progressed = Signal(str, float)
    verified = Signal(object)

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

    def on_details_requested(self, path: str) -> None:
        """Read all that a file says."""
        from app.bridge.details import read_details

        self.details_read.emit(read_details(Path(path)))

    def on_verify_requested(self, path: str) -> None:
        """Hash a file."""
        from app.bridge.details import verify

        told = 0.0

        def tell(share: float) -> None:
            nonlocal told
            if share - told >= PROGRESS_STEP:
                told = share
                self.verify_progressed.emit(path, share)

        self.verified.emit(verify(Path(path), self._cancel.is_set, tell))

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
        found(ModelsFound), details_read(ModelDetails), verify_progressed(path, share), verified(ModelVerified): in the
            GUI thread.

    Thread: GUI thread.
    """

    found = Signal(object)
    details_read = Signal(object)
    verify_progressed = Signal(str, float)
    verified = Signal(object)
    _requested = Signal(object)
    _details_requested = Signal(str)
    _verify_requested = Signal(str)

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
        queued = Qt.ConnectionType.QueuedConnection
        self._details_requested.connect(self._worker.on_details_requested, queued)
        self._verify_requested.connect(self._worker.on_verify_requested, queued)
        self._worker.found.connect(self._on_worker_found, queued)
        self._worker.details_read.connect(self._on_worker_details_read, queued)
        self._worker.verify_progressed.connect(self._on_worker_verify_progressed, queued)
        self._worker.verified.connect(self._on_worker_verified, queued)

    def scan(self, folders: tuple[str, ...]) -> None:
        """Look for models; `found` follows."""
        self._start()
        self._requested.emit(ScanModels(folders))

    def describe(self, path: str) -> None:
        """Read what a file says; `details_read` follows."""
        self._start()
        self._details_requested.emit(path)

    def verify(self, path: str) -> None:
        """Hash a file; `verified` follows."""
        self._start()
        self._verify_requested.emit(path)

    def shutdown(self, timeout_ms: int) -> bool:
        """End the thread; returns whether it ended in time."""
        self._cancel.set()
        self._thread.quit()
        return self._thread.wait(timeout_ms)

    def _start(self) -> None:
        if not self._thread.isRunning():
            self._thread.start()

    def _on_worker_found(self, found: ModelsFound) -> None:
        self.found.emit(found)

    def _on_worker_details_read(self, details: ModelDetails) -> None:
        self.details_read.emit(details)

    def _on_worker_verify_progressed(self, path: str, share: float) -> None:
        self.verify_progressed.emit(path, share)

    def _on_worker_verified(self, result: ModelVerified) -> None:
        self.verified.emit(result)
