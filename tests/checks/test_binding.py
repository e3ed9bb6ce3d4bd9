"""The Qt binding in use is free of the fault that PySide6 6.12.0 has on CPython 3.11."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, Signal

N_EMITS = 200


class Emitter(QObject):
    """Has a signal with a bool."""

    happened = Signal(bool)


class Receiver(QObject):
    """Counts."""

    n_received = 0

    def on_happened(self, value: bool) -> None:
        self.n_received += value


def test_emitting_true_keeps_its_references() -> None:
    """6.12.0 loses one reference to `True` at every emit, and aborts the process after some hundred."""
    emitter, receiver = Emitter(), Receiver()
    emitter.happened.connect(receiver.on_happened)
    emitter.happened.emit(True)
    before = sys.getrefcount(True)
    for _ in range(N_EMITS):
        emitter.happened.emit(True)
    assert receiver.n_received == N_EMITS + 1
    assert abs(sys.getrefcount(True) - before) < N_EMITS // 10
