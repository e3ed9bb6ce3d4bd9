"""How many threads to compute with."""

from __future__ import annotations

import os


def default_threads() -> int:
    """Threads to compute with: the processors this process may use."""
    try:
        return max(1, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS and Windows
        return max(1, os.cpu_count() or 1)
