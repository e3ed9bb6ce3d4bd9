"""One file, mapped into memory and never written: the bytes below `reader` and `header`.

A file that another process shortens after it was mapped is a hazard the system answers with SIGBUS, and nothing in
Python can turn that into an exception. What can be done cheaply is done: the metadata that outlives opening is checked
against the size the file has at the end of the opening, and `check_unchanged` lets the loader look again before it
reads the weights.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np

from engine.errors import GGUFFormatError
from engine.types import U8Array


class MappedFile:
    """A regular file mapped read-only.

    Attributes:
        path: as it was given.
        size: bytes.
        data: u8[size], a view into the map; empty once closed.
    """

    def __init__(self, path: Path) -> None:
        """Map it.

        Raises: GGUFFormatError: where it cannot be opened, is empty, or is a folder, pipe or device.
        """
        self.path = path
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to must not wait.
            flags = (
                os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
            )
            descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise GGUFFormatError(path, "file", -1, f"cannot be opened: {reason}") from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise GGUFFormatError(path, "file", -1, "is not a regular file")
            if status.st_size == 0:
                raise GGUFFormatError(path, "file", 0, "is empty")
            self.size = status.st_size
            self._identity = _identity(status)
            self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            if isinstance(error, GGUFFormatError):
                raise
            raise GGUFFormatError(path, "file", -1, f"cannot be mapped: {error}") from error
        finally:
            os.close(descriptor)
        self.data: U8Array = np.frombuffer(self._map, dtype=np.uint8)

    def check_unchanged(self) -> None:
        """Raise GGUFFormatError if the file was shortened, replaced or written to since it was mapped."""
        try:
            identity = _identity(os.stat(self.path))
        except OSError as error:
            raise GGUFFormatError(self.path, "file", -1, f"is gone: {error.strerror}") from error
        if identity != self._identity:
            raise GGUFFormatError(self.path, "file", -1, "was changed while it was open")

    def release(self, start: int, end: int) -> None:
        """Let go of the memory that mapped pages of [start, end) take; they are read again when touched."""
        advice = getattr(mmap, "MADV_DONTNEED", None)
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if advice is not None and first < end <= self.size and len(self.data):
            self._map.madvise(advice, first, end - first)

    def close(self) -> None:
        """Unmap it; where views are still held, as soon as the last one goes."""
        self.data = np.empty(0, dtype=np.uint8)
        try:
            self._map.close()
        except BufferError:
            return  # an array elsewhere looks into the map and keeps it alive


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
