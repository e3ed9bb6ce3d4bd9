"""Rows of a store's cells, one by one: what `kv_state` needs for a file that keeps them from save to save."""

from __future__ import annotations

import numpy as np

from cext.pages import gather_cells, scatter_cells
from engine.memory.cells import Cells, SeqRuns, cells_of_ranges, from_cells
from engine.memory.kv_convert import convert_cells
from engine.memory.kv_store import KVStore
from engine.memory.layout import PAGE_CELLS, KVLayout
from engine.memory.row_log import RowSource
from engine.types import I64Array, U8Array


def is_page(cells: Cells) -> bool:
    """Whether these are the 64 cells of one page in order."""
    return (
        len(cells) == PAGE_CELLS
        and bool((cells.page_id == cells.page_id[0]).all())
        and bool((cells.cell == np.arange(PAGE_CELLS)).all())
    )


def angles_of(table: SeqRuns) -> I64Array:
    """i64[n_cells]: the position that each cell's K was rotated for, whatever was shifted since."""
    cells = table.cells()
    angles: I64Array = cells.pos.astype(np.int64) + table.frame - cells.delta
    return angles


def load_from_log(
    store: KVStore, saved_layout: KVLayout, i_store: int, tables: dict[int, SeqRuns], source: RowSource
) -> dict[int, SeqRuns]:
    """Read the rows of one sequence into cells of a store, inside a transaction of its pages."""
    loaded: dict[int, SeqRuns] = {}
    for seq_id, table in tables.items():
        over_rows = table.cells()
        there = cells_of_ranges(store.take(len(over_rows)), over_rows.pos, 0).with_delta(over_rows.delta)
        for index, picks, n_rows in source.groups(i_store, over_rows.cell.astype(np.int64), angles_of(table)):
            _read_group(store, saved_layout, there.take(index), picks, n_rows, source)
        loaded[seq_id] = from_cells(there, table.frame, table.images)
    return loaded


class RowReader:
    """K and V of cells in the layout of a file."""

    def __init__(self, store: KVStore, cells: Cells, layout: KVLayout) -> None:
        self._store, self._cells, self._layout = store, cells, layout

    def read(self, index: I64Array) -> U8Array:
        """Of the cells at an index array; valid until the page changes."""
        store, group = self._store, self._cells.take(index)
        if is_page(group):
            data = store.pages.pool.view(int(group.page_id[0]))
        else:
            data = np.empty(len(group) * store.layout.cell_bytes, np.uint8)
            gather_cells(store.layout.row_bytes, group.page, group.cell, data)
        return data if self._layout is store.layout else convert_cells(store.layout, self._layout, data, len(group))


def _read_group(store: KVStore, saved: KVLayout, cells: Cells, picks: I64Array, n_rows: int, source: RowSource) -> None:
    here = store.layout
    is_same = (saved.type_k, saved.type_v) == (here.type_k, here.type_v)
    is_whole = len(picks) == n_rows
    if is_same and is_whole and is_page(cells):
        source.read_into(store.pages.pool.view(int(cells.page_id[0])))
        return
    data = np.empty(n_rows * saved.cell_bytes, np.uint8)
    source.read_into(data)
    if not is_whole:
        data = _picked(saved, data, picks, n_rows)
    if not is_same:
        data = convert_cells(saved, here, data, len(picks))
    scatter_cells(here.row_bytes, data, cells.page, cells.cell)


def _picked(layout: KVLayout, data: U8Array, picks: I64Array, n_rows: int) -> U8Array:
    """Some of the cells of data that is laid out like a page of n_rows cells."""
    parts = []
    at = 0
    for n_bytes in layout.row_bytes.tolist():
        plane = data[at : at + n_rows * n_bytes].reshape(n_rows, n_bytes)
        parts.append(plane[picks].reshape(-1))
        at += n_rows * n_bytes
    return np.concatenate(parts)
