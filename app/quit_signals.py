"""SIGINT and SIGTERM close the program as its window's button does."""

from __future__ import annotations

import signal
import socket
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier, Signal


class QuitSignals(QObject):
    """Tells of a signal of the system in the event loop, where alone it can be acted upon.

    Signals:
        quit_requested

    Thread: GUI thread, which must be the process's main thread.
    """

    quit_requested = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._read_end, self._write_end = socket.socketpair()
        for end in (self._read_end, self._write_end):
            end.setblocking(False)
        self._notifier = QSocketNotifier(self._read_end.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_notifier_activated)
        self._old_fd = signal.set_wakeup_fd(self._write_end.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}

    def close(self) -> None:
        """Give the signals back their old meaning."""
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._read_end.close()
        self._write_end.close()

    def _on_notifier_activated(self) -> None:
        if self._read_end.recv(64):
            self.quit_requested.emit()


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the byte written to the socket is what counts."""
