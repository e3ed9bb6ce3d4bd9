"""The rows of a session's file: which it has, writing those that it lacks, reading those in use.

Beside `engine.session_log`, which says where they stand and which generation they belong to.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.errors import ParamError, StateFileError
from engine.memory.layout import PAGE_CELLS, KVLayout
from engine.memory.row_log import CellRows
from engine.types import I64Array, QuantType, U8Array


@dataclass(frozen=True, slots=True)
class RowGroup:
    """K and V of up to 64 cells of a store, in the layout of a page with as many cells, at a place of the file."""

    offset: int
    store: int
    n_rows: int
    crc: int


@dataclass(slots=True)
class StoreRows:
    """The rows of one store, by the number of their cell.

    Attributes:
        row_bytes: of one row; 0 while there is none.
        row_of, angle_of: i64[...], indexed by a cell's number; row -1: the file does not have it.
    """

    n_rows: int = 0
    row_bytes: int = 0
    row_of: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    angle_of: I64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def copy(self) -> StoreRows:
        """The same, to be added to."""
        return StoreRows(self.n_rows, self.row_bytes, self.row_of.copy(), self.angle_of.copy())

    def find(self, births: I64Array, angles: I64Array) -> I64Array:
        """The row of each cell with this number and angle, -1 where the file has none."""
        self._reserve(births)
        return np.where(self.angle_of[births] == angles, self.row_of[births], -1)

    def note(self, births: I64Array, rows: I64Array, angles: I64Array) -> None:
        """Know the rows of cells."""
        self._reserve(births)
        self.row_of[births], self.angle_of[births] = rows, angles

    def _reserve(self, births: I64Array) -> None:
        n = int(births.max(initial=-1)) + 1 - len(self.row_of)
        if n > 0:
            self.row_of = np.concatenate([self.row_of, np.full(n, -1, np.int64)])
            self.angle_of = np.concatenate([self.angle_of, np.zeros(n, np.int64)])


@dataclass(slots=True)
class LogRows:
    """All rows of a file.

    Attributes:
        groups: in the order in which they were written.
        stores: by the number of the store.
    """

    groups: list[RowGroup] = field(default_factory=list)
    stores: dict[int, StoreRows] = field(default_factory=dict)

    def copy(self) -> LogRows:
        """The same, to be added to."""
        return LogRows(list(self.groups), {i: rows.copy() for i, rows in self.stores.items()})


class OtherTypesError(Exception):
    """The rows of a file are of other types than those to be added."""


class LogSink:
    """Writes rows that the file lacks.

    Attributes:
        live_bytes: of all rows in use.
    """

    def __init__(self, file: BinaryIO, rows: LogRows, births: I64Array, kv_type: QuantType | None) -> None:
        self._file, self._rows, self._births, self._kv_type = file, rows, births, kv_type
        self.live_bytes = 0

    def layout(self, here: KVLayout) -> KVLayout:
        """The layout that rows are kept in."""
        if self._kv_type is None:
            return here
        try:
            return KVLayout(here.layers, self._kv_type, self._kv_type)
        except ParamError:
            return here

    def put(self, store: int, cells: CellRows) -> tuple[int, I64Array]:
        """Write the rows that are new, in groups that end at multiples of 64. Raises: OtherTypesError."""
        n_cells, rows = len(cells.angles), self._rows.stores.setdefault(store, StoreRows())
        if rows.row_bytes not in (0, cells.layout.cell_bytes):
            raise OtherTypesError
        rows.row_bytes = cells.layout.cell_bytes
        # A store that lets go of old cells has the newest ones.
        births = self._births[len(self._births) - n_cells :]
        new = np.flatnonzero(rows.find(births, cells.angles) < 0)
        done = 0
        while done < len(new):
            index = new[done : done + PAGE_CELLS - rows.n_rows % PAGE_CELLS]
            data = cells.read(index).data
            self._rows.groups.append(RowGroup(self._file.tell(), store, len(index), zlib.crc32(data)))
            self._file.write(data)
            rows.note(births[index], np.arange(rows.n_rows, rows.n_rows + len(index)), cells.angles[index])
            rows.n_rows += len(index)
            done += len(index)
        self.live_bytes += n_cells * cells.layout.cell_bytes
        return rows.n_rows, rows.find(births, cells.angles)


class LogSource:
    """Reads the rows that are in use.

    Attributes:
        live_bytes: of all that was read.
    """

    def __init__(self, file: BinaryIO, rows: LogRows, name: Path) -> None:
        self._file, self._rows, self._name = file, rows, name
        self._current: RowGroup | None = None
        self._known: dict[int, tuple[I64Array, I64Array]] = {}
        self.live_bytes = 0

    def groups(self, store: int, rows: I64Array, angles: I64Array) -> Iterator[tuple[I64Array, I64Array, int]]:
        """The groups that hold these rows; `read_into` reads the one given last."""
        groups = [group for group in self._rows.groups if group.store == store]
        ends = np.cumsum([group.n_rows for group in groups], dtype=np.int64)
        n_rows = int(ends[-1]) if groups else 0
        if len(rows) and int(rows.max()) >= n_rows:
            raise StateFileError(f"row {int(rows.max())} of {n_rows} is in use", self._name)
        self._rows.stores[store] = StoreRows(n_rows)
        self._known[store] = (rows, angles)
        which = np.searchsorted(ends, rows, side="right")
        order = np.argsort(which, kind="stable")
        starts = np.flatnonzero(np.diff(which[order], prepend=-1))
        for index in np.split(order, starts[1:]) if len(rows) else ():
            i = int(which[index[0]])
            self._current = group = groups[i]
            yield index, rows[index] - (int(ends[i]) - group.n_rows), group.n_rows

    def read_into(self, out: U8Array) -> None:
        """Fill with that group."""
        assert self._current is not None
        view = out.data
        self._file.seek(self._current.offset)
        if self._file.readinto(view) != len(view) or zlib.crc32(view) != self._current.crc:  # type: ignore[attr-defined]
            raise StateFileError("a checksum is wrong: the data is damaged", self._name)
        self.live_bytes += len(view)
        self._rows.stores[self._current.store].row_bytes = len(view) // self._current.n_rows

    def number_cells(self, n_tokens: int) -> None:
        """Know the rows that were read by the numbers of n_tokens cells, of which a store may have only the newest."""
        for store, (rows, angles) in self._known.items():
            births = np.arange(n_tokens - len(rows), n_tokens, dtype=np.int64)
            self._rows.stores[store].note(births, rows, angles)
