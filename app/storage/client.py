"""The GUI thread's side of the storage thread."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.storage.records import CloseStore, StoreRequest
from app.storage.worker import StorageWorker


class StorageClient(QObject):
    """Starts the storage thread, passes requests to it and events back.

    Attributes:
        worker: the object in the storage thread; the engine's events are connected to it.

    Signals:
        happened(StoreEvent): in the GUI thread.

    Thread: GUI thread.
    """

    happened = Signal(object)
    _requested = Signal(object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread = QThread(self)
        self._thread.setObjectName("storage")
        self.worker = StorageWorker(folder)
        self.worker.moveToThread(self._thread)
        self._thread.started.connect(self.worker.start, Qt.ConnectionType.QueuedConnection)
        self._requested.connect(self.worker.on_request, Qt.ConnectionType.QueuedConnection)
        self.worker.happened.connect(self._on_worker_happened, Qt.ConnectionType.QueuedConnection)

    def start(self) -> None:
        """Start the thread; `StoreOpened` follows."""
        self._thread.start()

    def submit(self, request: StoreRequest) -> None:
        """Pass on a request; requests are carried out in order."""
        self._requested.emit(request)

    def shutdown(self, timeout_ms: int) -> bool:
        """Let everything that was submitted be written, and end the thread.

        Returns: whether the thread ended in time.
        """
        if not self._thread.isRunning():
            return True
        self.submit(CloseStore())
        return self._thread.wait(timeout_ms)

    def _on_worker_happened(self, event: object) -> None:
        self.happened.emit(event)
