"""Writes session files in a thread of its own, so that the engine goes on while the disk works."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from app.bridge.port import SessionCopy

MIN_FREE_BYTES = 2 << 30
"""No session file is written while the disk has less room."""


class SessionWriter:
    """Writes one file after the other; the newest of each chat is waited for before the file is read.

    Thread: engine thread.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sessions")
        self._pending: dict[int, Future[None]] = {}

    def submit(self, chat_id: int, copy: SessionCopy, path: Path, done: Callable[[int, OSError | None], None]) -> None:
        """Write a copy of a chat's memory, then let go of it.

        Args:
            done: called in the writing thread with the size in bytes, or with what went wrong.
        """

        def write() -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if shutil.disk_usage(path.parent).free < MIN_FREE_BYTES:
                    raise OSError(errno.ENOSPC, "less than 2 GB of the disk are free")
                n_bytes = copy.write(path)
            except OSError as error:
                done(0, error)
            else:
                done(n_bytes, None)
            finally:
                copy.close()

        self._pending = {key: future for key, future in self._pending.items() if not future.done()}
        self._pending[chat_id] = self._executor.submit(write)

    def wait(self, chat_id: int) -> None:
        """Wait until a chat's file is written."""
        future = self._pending.pop(chat_id, None)
        if future is not None:
            wait([future])

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._executor.shutdown()
