"""Cells that come from a file of another engine, written as the blocks that a cache loads.

`engine.llama_state` fills them; from the blocks on, loading is that of `kv_state`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.io import BlockWriter
from engine.memory.cells import Cells, SeqRuns, from_cells
from engine.memory.images import with_cells
from engine.memory.kv_state import write_head, write_store
from engine.memory.layout import PAGE_CELLS, KVLayout
from engine.types import I32Array

RowMatrix = npt.NDArray[np.uint8]
"""u8[n_cells, n_head_kv * row_bytes]: K or V of one layer, a row for each cell."""


@dataclass(frozen=True, slots=True, eq=False)
class RowStore:
    """The cells of one cache.

    Attributes:
        layout: the layers and their types.
        pos: i32[n_cells], each cell's position.
        seq_ids: the sequences of each cell.
        k, v: of each layer of the layout, in its order.
        axes: i32[n_cells, 4], as in `Batch`, or None.
    """

    layout: KVLayout
    pos: I32Array
    seq_ids: tuple[tuple[int, ...], ...]
    k: tuple[RowMatrix, ...]
    v: tuple[RowMatrix, ...]
    axes: I32Array | None = None

    def tables(self) -> dict[int, SeqRuns]:
        """The runs of each sequence over the rows, as they were encoded: no shifts are pending."""
        members: dict[int, list[int]] = {}
        for i, ids in enumerate(self.seq_ids):
            for s in ids:
                members.setdefault(s, []).append(i)
        return {s: self._table(np.array(rows, np.int32)) for s, rows in members.items()}

    def _table(self, rows: I32Array) -> SeqRuns:
        keys = self.pos[rows, None] if self.axes is None else self.axes[rows, :3]
        rows = rows[np.lexsort(keys.T[::-1])]
        images = () if self.axes is None else with_cells((), self.axes[rows])
        n = len(rows)
        nowhere = np.zeros(n, np.int32)
        return from_cells(Cells(np.zeros(n, np.uint64), nowhere, rows, self.pos[rows], nowhere), 0, images)

    def parts(self) -> Iterator[bytes]:
        """K and V of the rows, 64 at a time, in the layout of a page."""
        for i in range(0, len(self.pos), PAGE_CELLS):
            for layer, k, v in zip(self.layout.layers, self.k, self.v, strict=True):
                for rows in (k, v):
                    part = rows[i : i + PAGE_CELLS]
                    by_head = part.reshape(len(part), layer.n_head_kv, part.shape[1] // layer.n_head_kv)
                    yield by_head.transpose(1, 0, 2).tobytes()


def write_row_stores(writer: BlockWriter, fingerprint: str, stores: Sequence[RowStore], *, is_full: bool) -> None:
    """Write the blocks of a cache of this fingerprint: all sequences, or the one that there is."""
    write_head(writer, fingerprint, [store.layout for store in stores], is_full=is_full)
    for store in stores:
        write_store(writer, store.layout, len(store.pos), store.tables(), store.parts())
