"""The flag that stops one job: set in the GUI thread, seen at once by whatever the engine thread runs.

A queued signal could not do it: the engine thread looks at its queue only when the job is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class JobCancel:
    """A request to stop one job; once set it stays set.

    Thread: `set` and `is_set` from any thread; `passed_on` in the engine thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._stop: Callable[[], None] | None = None

    def set(self) -> None:
        """Ask for the stop."""
        with self._lock:
            self._is_set = True
            if self._stop is not None:
                self._stop()

    def is_set(self) -> bool:
        """Whether the stop was asked for."""
        return self._is_set

    @contextmanager
    def passed_on(self, stop: Callable[[], None]) -> Iterator[None]:
        """Have `stop` called, from the thread that asks, for as long as the block runs; at once if asked before."""
        with self._lock:
            self._stop = stop
            if self._is_set:
                stop()
        try:
            yield
        finally:
            with self._lock:
                self._stop = None
