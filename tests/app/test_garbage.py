"""Cyclic garbage is collected on the GUI thread, whichever thread allocates."""

from __future__ import annotations

import gc
import threading
import weakref

from pytestqt.qtbot import QtBot

from app import garbage


class Ring:
    """An object that only the collector of cycles can free."""

    def __init__(self) -> None:
        self.me = self


def make_rings(n: int) -> None:
    for _ in range(n):
        Ring()


def test_another_thread_frees_nothing(qtbot: QtBot) -> None:
    gc.enable()
    gc.collect()
    collector = garbage.GarbageCollector()
    freed_on: list[int] = []
    ring = Ring()
    weakref.finalize(ring, lambda: freed_on.append(threading.get_ident()))
    del ring
    thread = threading.Thread(target=make_rings, args=(50_000,))
    thread.start()
    thread.join()
    assert not freed_on
    qtbot.wait(1)
    assert freed_on == [threading.get_ident()]
    collector.close()
    assert gc.isenabled()
    gc.disable()
