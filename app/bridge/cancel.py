"""The flag that stops one job: set in the GUI thread, passed on at once to whatever computes the reply.

A queued signal could not do it: the engine thread may be busy with a file or a model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class JobCancel:
    """A request to stop one job; once set it stays set.

    Thread: any.
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

    def pass_on(self, stop: Callable[[], None]) -> None:
        """Have `stop` called, from the thread that asks; at once if asked before."""
        with self._lock:
            self._stop = stop
            if self._is_set:
                stop()
