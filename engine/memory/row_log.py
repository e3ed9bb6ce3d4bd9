"""What a memory asks of a file that keeps rows of cells from save to save: `engine.session_log` is one.

A row is K and V of one cell. The file has the rows of earlier saves; a save hands over those that are new, a load picks
those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from engine.memory.layout import KVLayout
from engine.types import I64Array, U8Array


@dataclass(frozen=True, slots=True, eq=False)
class CellRows:
    """The rows of a sequence's cells in one store, in the order of positions.

    Attributes:
        angles: i64[n_cells], the position that each cell's K was rotated for.
        read: gives K and V of the cells at an index array, u8[n * layout.cell_bytes], laid out like a page of n cells.
    """

    layout: KVLayout
    angles: I64Array
    read: Callable[[I64Array], U8Array]


class RowSink(Protocol):
    """The file while a session is saved."""

    def layout(self, here: KVLayout) -> KVLayout:
        """The layout that rows are kept in; K and V are converted to its types."""

    def put(self, store: int, cells: CellRows) -> tuple[int, I64Array]:
        """Take the rows that are new.

        Returns: how many rows the file has of this store, and the row of each cell, i64[n_cells].
        """


class RowSource(Protocol):
    """The file while a session is loaded."""

    def groups(self, store: int, rows: I64Array, angles: I64Array) -> Iterable[tuple[I64Array, I64Array, int]]:
        """The groups of rows that hold a sequence's cells.

        Args:
            rows: i64[n_cells], the row of each cell, in the order of positions.
            angles: i64[n_cells], as in `CellRows`.

        Returns: of each group: which cells it holds, their places in it, and how many rows it has.
        Raises: StateFileError: a row that the file does not have.
        """

    def read_into(self, out: U8Array) -> None:
        """Fill with the group that `groups` gave last. Raises: StateFileError: it is damaged."""
