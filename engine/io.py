"""Files that are whole or absent, and the container of saved state: tagged blocks with lengths and checksums.

    magic (8 bytes) | version u32 | 0 u32
    per block: tag (4 bytes) | n_bytes u64 | payload | crc32 of tag, length and payload u32
    last block: tag "END." with no payload

All numbers little-endian. What the blocks mean is said by `engine.state` and by each memory.
"""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import StateFileError, StateVersionError

STATE_MAGIC = b"CAUSERIE"
STATE_VERSION = 3
_HEAD = struct.Struct("<8sII")
_BLOCK = struct.Struct("<4sQ")
_CRC = struct.Struct("<I")
_END = b"END."

_Scalar = TypeVar("_Scalar", bound=np.generic)
Payload = bytes | bytearray | memoryview


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only when it is complete and on the disk; on any error the old one stays.

    Raises: OSError: the disk's own words.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, where folders can be opened (not on Windows)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Sink(Protocol):
    """Where bytes go: a file, a BytesIO."""

    def write(self, data: memoryview, /) -> object:
        """Take all of the bytes."""


class BlockWriter:
    """Writes the container, block by block; payloads may come in parts that are never joined.

    Attributes:
        n_bytes: written so far, framing included.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.n_bytes = 0
        self._write(_HEAD.pack(STATE_MAGIC, STATE_VERSION, 0))

    def block(self, tag: bytes, parts: Iterable[Payload], n_bytes: int) -> None:
        """Write a block whose parts have n_bytes together."""
        head = _BLOCK.pack(tag, n_bytes)
        crc = zlib.crc32(head)
        self._write(head)
        end = self.n_bytes + n_bytes
        for part in parts:
            view = memoryview(part)
            crc = zlib.crc32(view, crc)
            self._write(view)
        assert self.n_bytes == end, f"block {tag!r} has other than {n_bytes} bytes"
        self._write(_CRC.pack(crc))

    def close(self) -> None:
        """Write the end mark. The sink stays open."""
        self.block(_END, (), 0)

    def _write(self, data: bytes | memoryview) -> None:
        self._sink.write(memoryview(data))
        self.n_bytes += len(data)


class BlockCounter(BlockWriter):
    """Counts what a BlockWriter would write, without making the parts."""

    def __init__(self) -> None:
        self.n_bytes = _HEAD.size

    def block(self, tag: bytes, parts: Iterable[Payload], n_bytes: int) -> None:
        """Count a block."""
        self.n_bytes += _BLOCK.size + n_bytes + _CRC.size


class BlockReader:
    """Reads the container, block by block, never past its end and never more than was asked for.

    Args:
        source: a file or BytesIO at the container's first byte.
        n_bytes: bytes it has.
        name: for messages.

    Raises: StateFileError kinds, from every method, for anything that is not as it must be.
    """

    def __init__(self, source: BinaryIO, n_bytes: int, name: object = "") -> None:
        self._source, self._left, self.name = source, n_bytes, str(name)
        self._in_block = 0
        self._crc = 0
        self._next: tuple[bytes, int] | None = None
        magic, version, zero = _HEAD.unpack(self._read(_HEAD.size, "header"))
        if magic != STATE_MAGIC:
            raise StateFileError("not a saved state", self.name)
        if version != STATE_VERSION or zero:
            raise StateVersionError(f"version {version} is not read by this engine", self.name)

    def error(self, reason: str) -> StateFileError:
        """An error that names this source."""
        return StateFileError(reason, self.name)

    def peek(self) -> bytes:
        """The tag of the next block."""
        if self._next is None:
            head = self._read(_BLOCK.size, "block header")
            tag, n_bytes = _BLOCK.unpack(head)
            if n_bytes > self._left - _CRC.size:
                raise self.error(f"block {tag!r} has {n_bytes:,} bytes, {max(self._left - _CRC.size, 0):,} are left")
            self._crc = zlib.crc32(head)
            self._next = (tag, n_bytes)
        return self._next[0]

    def begin(self, tag: bytes, n_bytes_max: int | None = None) -> int:
        """Enter the next block, which must have this tag: its bytes."""
        found = self.peek()
        assert self._next is not None
        n_bytes = self._next[1]
        if found != tag:
            raise self.error(f"block {tag!r} is missing, {found!r} stands in its place")
        if n_bytes_max is not None and n_bytes > n_bytes_max:
            raise self.error(f"block {tag!r} has {n_bytes:,} bytes, at most {n_bytes_max:,} are possible")
        self._next, self._in_block = None, n_bytes
        return n_bytes

    def read(self, n_bytes: int) -> bytes:
        """The next bytes of the block."""
        self._claim(n_bytes)
        data = self._read(n_bytes, "block")
        self._crc = zlib.crc32(data, self._crc)
        return data

    def read_array(self, dtype: type[_Scalar] | np.dtype[_Scalar], n: int) -> npt.NDArray[_Scalar]:
        """The next n values of the block, owned by the caller."""
        kind = np.dtype(dtype)
        self._claim(n * kind.itemsize, take=False)
        out = np.empty(n, kind)
        self.read_into(out)
        return out

    def read_into(self, out: npt.NDArray[np.generic]) -> None:
        """Fill a C-contiguous array with the next bytes of the block."""
        if not out.size:
            return
        view = out.reshape(-1).view(np.uint8).data
        self._claim(len(view))
        done = 0
        while done < len(view):
            n = self._source.readinto(view[done:])  # type: ignore[attr-defined]
            if not n:
                raise self.error("the file ends inside a block")
            done += n
        self._left -= done
        self._crc = zlib.crc32(view, self._crc)

    def end(self) -> None:
        """Leave the block: all of it must have been read, and its checksum must be right."""
        if self._in_block:
            raise self.error(f"a block has {self._in_block:,} bytes too many")
        crc = self._crc
        if _CRC.unpack(self._read(_CRC.size, "checksum"))[0] != crc:
            raise self.error("a checksum is wrong: the data is damaged")

    def whole(self, tag: bytes, n_bytes_max: int) -> bytes:
        """A small block in one piece."""
        data = self.read(self.begin(tag, n_bytes_max))
        self.end()
        return data

    def close(self) -> None:
        """Make sure that the end mark stands here, and nothing behind it."""
        self.begin(_END, 0)
        self.end()
        if self._left:
            raise self.error(f"{self._left:,} bytes stand behind the end")

    def _claim(self, n_bytes: int, take: bool = True) -> None:
        if n_bytes < 0 or n_bytes > self._in_block:
            raise self.error(f"a block ends {n_bytes - self._in_block:,} bytes too early")
        if take:
            self._in_block -= n_bytes

    def _read(self, n_bytes: int, what: str) -> bytes:
        if n_bytes > self._left:
            raise self.error(f"the data ends inside a {what}")
        data = self._source.read(n_bytes)
        if len(data) != n_bytes:
            raise self.error(f"the data ends inside a {what}")
        self._left -= n_bytes
        return data
