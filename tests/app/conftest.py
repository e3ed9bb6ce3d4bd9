"""Guards for all tests of the window: no thread of the program may outlive a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

THREADS = ("engine", "storage", "catalogue")


def program_threads() -> list[str]:
    """Return the names of the program's threads that run in this process; none where the system does not tell."""
    tasks = Path("/proc/self/task")
    names = []
    for task in tasks.iterdir() if tasks.exists() else ():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            continue
    return [name for name in names if name in THREADS]


def wait_for_no_thread() -> None:
    """Fail if a thread of the program is left; QThread.wait() returns a moment before the system's thread is gone."""
    until = time.monotonic() + 2
    while program_threads() and time.monotonic() < until:
        time.sleep(0.002)
    assert program_threads() == []


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_for_no_thread()
