"""One process per data folder: the first holds a lock, a later one asks it to show its window."""

from __future__ import annotations

import hashlib
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

WAIT_MS = 1000
SHOW = b"show\n"


class SingleInstance(QObject):
    """The lock on a data folder and, where it is held, the ear for later processes.

    Signals:
        show_requested: another process was started on the same folder; it has ended by now.

    Thread: GUI thread.
    """

    show_requested = Signal()

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = QLockFile(str(folder / "causerie.lock"))
        # The lock of a process that was killed is recognised by its process id.
        self._lock.setStaleLockTime(0)
        # A name of fixed length: the paths of sockets may have about a hundred characters.
        digest = hashlib.blake2b(str(folder.resolve()).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self._name = f"causerie-{digest}"
        self._server: QLocalServer | None = None

    def acquire(self) -> bool:
        """Take the lock; False where another process has it."""
        if not self._lock.tryLock(0):
            return False
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_server_new_connection)
        # Without it the lock still holds; a second start then only says so.
        self._server.listen(self._name)
        return True

    def is_held(self) -> bool:
        """Whether it is another process that keeps the lock from us, and not the folder itself."""
        return self._lock.error() == QLockFile.LockError.LockFailedError

    def ask_first_to_show(self) -> bool:
        """Ask the process that has the lock to show its window; False where it does not answer."""
        socket = QLocalSocket(self)
        socket.connectToServer(self._name)
        if not socket.waitForConnected(WAIT_MS):
            return False
        socket.write(SHOW)
        is_sent = socket.waitForBytesWritten(WAIT_MS)
        socket.disconnectFromServer()
        return is_sent

    def release(self) -> None:
        """Let go of the lock."""
        if self._server is not None:
            self._server.close()
        self._lock.unlock()

    def _on_server_new_connection(self) -> None:
        assert self._server is not None
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            self.show_requested.emit()
