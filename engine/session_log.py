"""A session's file: each save adds what is new, and at every moment the file holds one whole generation.

    magic (8 bytes) | version u32 | 0 u32
    2 slots: generation u64 | offset u64 | n_bytes u64 | crc32 of the head u32 | crc32 of this slot u32
    then, as they were written, groups of rows and heads:
    group: K and V of up to 64 cells in the layout of a page with as many cells
    head: n_groups u32 | per group: offset u64, store u32, n_rows u32, crc32 u32 | a container of `engine.state`, whose
          tables count rows over all groups of a store

A save writes rows and a head behind the last one, flushes, then puts the head's place into the older slot: a file that
ends anywhere else than where it should still has the generation before. Cells are known by the number that the session
gave them when they were computed and by the angle of their K, so none is written twice. Beside `engine.session`, which
fills and reads it.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from engine.errors import StateFileError, StateVersionError
from engine.io import BlockReader, BlockWriter, atomic_write
from engine.memory import Memory
from engine.memory.layout import PAGE_CELLS
from engine.session_file import SessionSnapshot
from engine.session_rows import LogRows, LogSink, LogSource, OtherTypesError, RowGroup
from engine.state import SavedTokens, StateInfo, read_state, write_state
from engine.types import QuantType

LOG_MAGIC = b"CAUSLOG\n"
LOG_VERSION = 1
_HEAD = struct.Struct("<8sII")
_SLOT = struct.Struct("<QQQI")
_CRC = struct.Struct("<I")
_COUNT = struct.Struct("<I")
_GROUP = struct.Struct("<QIII")
_SLOT_BYTES = _SLOT.size + _CRC.size
_BEGIN = _HEAD.size + 2 * _SLOT_BYTES

_SPARE_BYTES = 4 << 20
"""A file is written anew once more than half of it and of this is rows that nobody has any more."""


@dataclass(frozen=True, slots=True)
class _Slot:
    generation: int
    offset: int
    n_bytes: int
    crc: int

    @property
    def end(self) -> int:
        return self.offset + self.n_bytes

    def pack(self) -> bytes:
        data = _SLOT.pack(self.generation, self.offset, self.n_bytes, self.crc)
        return data + _CRC.pack(zlib.crc32(data))


@dataclass(slots=True)
class _Book:
    """What is in the file.

    Attributes:
        live_bytes: of the rows in use and the head.
    """

    slot: _Slot = _Slot(0, _BEGIN, 0, 0)
    rows: LogRows = field(default_factory=LogRows)
    live_bytes: int = 0


class SessionLog:
    """One session's file.

    Args:
        path: the file; it need not exist.
        kv_type: K and V are kept in this type; None: in that of the cache. Head sizes that do not allow it: as None.

    Thread: any, one at a time.
    """

    def __init__(self, path: str | Path, kv_type: QuantType | None = None) -> None:
        self.path = Path(path)
        self._kv_type = kv_type
        self._book = _Book()

    def append(self, snapshot: SessionSnapshot) -> int:
        """Add what is new as the next generation; the file's bytes.

        Raises: OSError: the disk's own words; the generation before stays.
        """
        if not self._can_grow():
            self._write_anew(snapshot)
            return self._book.slot.end
        try:
            self._grow(snapshot)
        except OtherTypesError:
            self._write_anew(snapshot)
        return self._book.slot.end

    def load(self, info: StateInfo, memory: Memory, seq_id: int) -> SavedTokens:
        """Replace a sequence by the last whole generation; later saves add to it.

        The cells count as 0, 1, ... from then on, see `SessionSnapshot.births`.

        Raises: as `engine.state.read_state`; StateFileError: the file cannot be opened or read. Nothing changed.
        """
        try:
            with open(self.path, "rb") as file:
                return self._load(file, info, memory, seq_id)
        except OSError as error:
            raise StateFileError(f"cannot be read: {error.strerror or error}", self.path) from error

    # -- writing

    def _can_grow(self) -> bool:
        book = self._book
        if not book.slot.generation or book.slot.end > 2 * book.live_bytes + _SPARE_BYTES:
            return False
        try:
            with open(self.path, "rb") as file:
                return _newest_slot(file, self.path) == book.slot
        except (OSError, StateFileError):
            return False

    def _grow(self, snapshot: SessionSnapshot) -> None:
        with open(self.path, "r+b") as file:
            book, end = _Book(self._book.slot, self._book.rows.copy()), self._book.slot.end
            try:
                file.truncate(end)
                file.seek(end)
                self._write(file, book, snapshot)
                _flush(file)
            except (OSError, OtherTypesError):
                file.truncate(end)
                raise
            file.seek(_HEAD.size + book.slot.generation % 2 * _SLOT_BYTES)
            file.write(book.slot.pack())
            _flush(file)
        self._book = book

    def _write_anew(self, snapshot: SessionSnapshot) -> None:
        book = _Book()
        with atomic_write(self.path) as file:
            file.write(_HEAD.pack(LOG_MAGIC, LOG_VERSION, 0) + bytes(2 * _SLOT_BYTES))
            self._write(file, book, snapshot)
            file.seek(_HEAD.size)
            file.write(2 * book.slot.pack())
        self._book = book

    def _write(self, file: BinaryIO, book: _Book, snapshot: SessionSnapshot) -> None:
        sink = LogSink(file, book.rows, snapshot.births, self._kv_type)
        container = io.BytesIO()
        write_state(BlockWriter(container), snapshot.info, snapshot.memory, snapshot.seq_id, snapshot.beside, sink)
        groups = b"".join(_GROUP.pack(g.offset, g.store, g.n_rows, g.crc) for g in book.rows.groups)
        head = _COUNT.pack(len(book.rows.groups)) + groups + container.getvalue()
        offset = file.tell()
        file.write(head)
        book.slot = _Slot(book.slot.generation + 1, offset, len(head), zlib.crc32(head))
        book.live_bytes = sink.live_bytes + len(head)

    # -- reading

    def _load(self, file: BinaryIO, info: StateInfo, memory: Memory, seq_id: int) -> SavedTokens:
        slot = _newest_slot(file, self.path)
        file.seek(slot.offset)
        head = file.read(slot.n_bytes)
        if len(head) != slot.n_bytes or zlib.crc32(head) != slot.crc:
            raise StateFileError("a checksum is wrong: the data is damaged", self.path)
        book = _Book(slot, LogRows(self._read_groups(head, slot)))
        source = LogSource(file, book.rows, self.path)
        container = io.BytesIO(head[_COUNT.size + len(book.rows.groups) * _GROUP.size :])
        reader = BlockReader(container, container.getbuffer().nbytes, self.path)
        saved = read_state(reader, info, memory, seq_id, convert_kv=True, source=source)
        source.number_cells(len(saved.tokens))
        book.live_bytes = source.live_bytes + slot.n_bytes
        self._book = book
        return saved

    def _read_groups(self, head: bytes, slot: _Slot) -> list[RowGroup]:
        (n,) = _COUNT.unpack_from(head) if len(head) >= _COUNT.size else (0,)
        if not n * _GROUP.size <= len(head) - _COUNT.size:
            raise StateFileError("the list of rows is too short", self.path)
        groups = [RowGroup(*_GROUP.unpack_from(head, _COUNT.size + i * _GROUP.size)) for i in range(n)]
        if any(not 0 < g.n_rows <= PAGE_CELLS or not _BEGIN <= g.offset < slot.offset for g in groups):
            raise StateFileError("the list of rows is inconsistent", self.path)
        return groups


def _newest_slot(file: BinaryIO, name: Path) -> _Slot:
    """The place of the last head that was put in whole. Raises: StateFileError kinds."""
    data = file.read(_BEGIN)
    if len(data) < _BEGIN or data[: len(LOG_MAGIC)] != LOG_MAGIC:
        raise StateFileError("not a saved session", name)
    _, version, zero = _HEAD.unpack_from(data)
    if version != LOG_VERSION or zero:
        raise StateVersionError(f"version {version} is not read by this engine", name)
    size = os.fstat(file.fileno()).st_size
    slots = []
    for i in range(2):
        part = data[_HEAD.size + i * _SLOT_BYTES :][:_SLOT_BYTES]
        slot = _Slot(*_SLOT.unpack_from(part))
        # A slot lies within a sector of any disk, so it is never half written.
        if zlib.crc32(part[: _SLOT.size]) != _CRC.unpack_from(part, _SLOT.size)[0] or slot.offset < _BEGIN:
            raise StateFileError("its first bytes are damaged", name)
        slots.append(slot)
    whole = [slot for slot in slots if slot.end <= size]
    if not whole:
        raise StateFileError("it is cut off", name)
    return max(whole, key=lambda slot: slot.generation)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
