"""A picture of a cache for people and tests: cells, positions, sequences, runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.memory.base import RunArray
from engine.memory.kv import KVCache
from engine.types import I32Array


@dataclass(frozen=True, slots=True, eq=False)
class SeqView:
    """One sequence in one store.

    Attributes:
        seq_id: its id.
        frame: what is added to its positions before rotating.
        pos: i32[n], the position of each cell.
        page_id: i32[n]; cell: i32[n]; where it lies.
        delta: i32[n], how far K stands from where it was encoded, in the sequence's frame.
        runs: KVRun[n_runs], the same as attention sees it.
    """

    seq_id: int
    frame: int
    pos: I32Array
    page_id: I32Array
    cell: I32Array
    delta: I32Array
    runs: RunArray


@dataclass(frozen=True, slots=True)
class KVCacheView:
    """A cache as it is now; later changes do not show.

    Attributes:
        n_pages: pages held, in each store.
        used_cells: distinct cells in use, in each store.
        seqs: the sequences of each store.
    """

    n_pages: tuple[int, ...]
    used_cells: tuple[int, ...]
    seqs: tuple[tuple[SeqView, ...], ...]

    @classmethod
    def of(cls, cache: KVCache) -> KVCacheView:
        """Look at a cache."""
        stores = cache.stores
        return cls(
            n_pages=tuple(store.pages.n_pages for store in stores),
            used_cells=tuple(store.pages.used_cells for store in stores),
            seqs=tuple(tuple(_seq_view(cache, i, seq_id) for seq_id in cache.seq_ids()) for i in range(len(stores))),
        )


def _seq_view(cache: KVCache, i_store: int, seq_id: int) -> SeqView:
    table = cache.stores[i_store].table(seq_id)
    cells = table.cells()
    return SeqView(seq_id, table.frame, cells.pos, cells.page_id, cells.cell, np.asarray(cells.delta), table.snapshot())
