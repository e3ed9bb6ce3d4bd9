"""The threads to compute with: how many, and starting them."""

from __future__ import annotations

import os

from cext.threadpool import ThreadPool
from engine.errors import OutOfMemoryError

STACK_BYTES = 8 << 20
"""Of a thread, as most systems reserve it."""


def default_threads() -> int:
    """Threads to compute with: the processors this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS and Windows
        return max(1, os.cpu_count() or 1)


def make_pool(n_threads: int) -> ThreadPool:
    """A pool of threads. Raises: OutOfMemoryError: the system starts no more."""
    try:
        return ThreadPool(n_threads)
    except RuntimeError:  # std::system_error
        raise OutOfMemoryError(n_threads * STACK_BYTES, "threads") from None
