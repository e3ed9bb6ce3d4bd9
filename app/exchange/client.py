"""The GUI thread's side of reading and writing files of chats: one thread does it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt, QThread, Signal

from app.exchange.cards import CARD_SUFFIXES, card_of, converted, kept_card, name_of
from app.exchange.errors import ExchangeError
from app.exchange.reading import load, read_bytes
from app.exchange.writing import write_file, write_whole
from app.storage.records import ChatTree


class ExchangeWorker(QObject):
    """Reads and writes; the files of characters that come in are kept in a folder.

    Signals:
        was_read(trees): of one file; was_written(path); failed(path, sentence).

    Thread: the exchange thread.
    """

    was_read = Signal(object)
    was_written = Signal(str)
    failed = Signal(str, str)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def on_read(self, path: str) -> None:
        """Read a file."""
        try:
            data = load(Path(path))
            trees = read_bytes(data)
            if card_of(data):
                self._keep(data)
            self.was_read.emit(tuple(trees))
        except ExchangeError as error:
            self.failed.emit(path, str(error))

    def on_write(self, path: str, trees: tuple[ChatTree, ...]) -> None:
        """Write a file."""
        try:
            if Path(path).suffix.lower() in CARD_SUFFIXES:
                write_whole(Path(path), converted(kept_card(trees[0], self._folder), Path(path).suffix.lower()))
            else:
                write_file(Path(path), trees)
            self.was_written.emit(path)
        except ExchangeError as error:
            self.failed.emit(path, str(error))

    def _keep(self, data: bytes) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExchangeError(f"The character cannot be kept: {error.strerror}.") from error
        write_whole(self._folder / name_of(data), data)


class ExchangeClient(QObject):
    """Passes requests to the thread, which starts with the first one, and its signals back.

    Signals:
        was_read, was_written, failed: as `ExchangeWorker` has them.

    Thread: GUI thread.
    """

    was_read = Signal(object)
    was_written = Signal(str)
    failed = Signal(str, str)
    _read_wanted = Signal(str)
    _write_wanted = Signal(str, object)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._thread = QThread(self)
        self._thread.setObjectName("exchange")
        self._worker = ExchangeWorker(folder)
        self._worker.moveToThread(self._thread)
        queued = Qt.ConnectionType.QueuedConnection
        self._read_wanted.connect(self._worker.on_read, queued)
        self._write_wanted.connect(self._worker.on_write, queued)
        self._worker.was_read.connect(self.was_read, queued)
        self._worker.was_written.connect(self.was_written, queued)
        self._worker.failed.connect(self.failed, queued)

    def read(self, path: str) -> None:
        """Read a file of chats."""
        self._thread.start()
        self._read_wanted.emit(path)

    def write(self, path: str, trees: object) -> None:
        """Write chats to a file."""
        self._thread.start()
        self._write_wanted.emit(path, trees)

    def shutdown(self, timeout_ms: int) -> bool:
        """End the thread behind what it does now; returns whether it ended in time."""
        self._thread.quit()
        return self._thread.wait(timeout_ms)
