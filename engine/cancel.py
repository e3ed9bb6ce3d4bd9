"""One job's cancel flag: set from any thread, read by the loop and, through the context's abort flag, by C.

Stands below the pipeline: whoever asks for text makes one, `engine.generate` binds it to the context while it runs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.types import I32Array


class CancelFlag:
    """A request to stop; once set it stays set.

    Thread: `set` and `is_set` from any thread; `bound` in the engine thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._abort_flag: I32Array | None = None

    def set(self) -> None:
        """Ask for the stop; what runs without the GIL sees it between two blocks of rows."""
        with self._lock:
            self._is_set = True
            if self._abort_flag is not None:
                self._abort_flag[0] = 1

    def is_set(self) -> bool:
        """Whether the stop was asked for."""
        return self._is_set

    @contextmanager
    def bound(self, abort_flag: I32Array) -> Iterator[None]:
        """Pass the request on to a context for as long as the block runs; leave its flag at zero.

        Args:
            abort_flag: i32[1], the context's own; non-zero stops its decode.
        """
        with self._lock:
            self._abort_flag = abort_flag
            abort_flag[0] = int(self._is_set)
        try:
            yield
        finally:
            with self._lock:
                self._abort_flag = None
                abort_flag[0] = 0
