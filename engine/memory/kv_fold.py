"""Moving cells of a store: folding deltas into K, and compacting. Both build new tables on fresh cells.

Called between decodes, never inside a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cext.pages import decode_rows, encode_rows, gather_cells, scatter_cells
from engine.errors import ContextFullError
from engine.memory.base import RopeShift
from engine.memory.cells import Cells, SeqRuns, cells_of_ranges, from_cells, join_cells
from engine.memory.kv_store import KVStore
from engine.memory.layout import PAGE_CELLS, KVLayout
from engine.types import F32Array, I32Array, U8Array

_COPY_CELLS = 256  # cells moved at a time


def fold(store: KVStore, tables: Mapping[int, SeqRuns], rope: RopeShift) -> dict[int, SeqRuns]:
    """Rotate K that stands where it was not encoded, on private copies.

    Args:
        store: holds the cells of the tables; its own sequences are not changed.
        tables: by sequence; they need not be installed.

    Returns: tables without deltas; the store holds their new cells until its next `install`.
    Raises: ContextFullError, OutOfMemoryError: no room for the copies; nothing changed.
    """
    written = {seq_id: table.cells() for seq_id, table in tables.items()}
    turned = {seq_id: np.flatnonzero(cells.delta) for seq_id, cells in written.items()}
    source = join_cells([written[seq_id].take(index) for seq_id, index in turned.items()])
    if not len(source):
        return dict(tables)
    # A cell that several sequences have with the same delta gets one copy.
    pairs = np.stack([source.key(), source.delta.astype(np.int64)], 1)
    _, first, copy_of = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    copies = _copied(store, source.take(first), rope).take(copy_of.ravel())
    out: dict[int, SeqRuns] = {}
    done = 0
    for seq_id, index in turned.items():
        out[seq_id] = from_cells(
            written[seq_id].replaced(index, copies.take(slice(done, done + len(index)))),
            tables[seq_id].frame,
            tables[seq_id].images,
        )
        done += len(index)
    return out


def compact(store: KVStore) -> None:
    """Move cells together by sequence and position, as far as there is room; shared pages stay where they are."""
    finished: set[int] = set()
    while True:
        loose = _loose_cells(store, finished)
        n = min(len(loose), store.pages.pool.n_free * PAGE_CELLS)
        n_pages = len(np.unique(loose.page_id))
        if n == 0 or n_pages <= -(-len(loose) // PAGE_CELLS):
            return
        source = loose.take(slice(0, n))
        try:
            target = _copied(store, source, None)
        except ContextFullError:
            return
        finished.update(int(page_id) for page_id in np.unique(target.page_id))
        store.install({seq_id: _moved(table, source, target) for seq_id, table in store.seqs.items()})


def _loose_cells(store: KVStore, finished: set[int]) -> Cells:
    """Cells of pages that are held alone and not full in one run, each once, by sequence and position."""
    settled = set(finished)
    for table in store.seqs.values():
        settled.update(table.runs["page_id"][table.runs["count"] == PAGE_CELLS].tolist())
    pool = store.pages.pool
    movable = [p for p in store.pages.used() if p not in settled and pool.refs(p) == 1]
    cells = join_cells([store.seqs[seq_id].cells() for seq_id in sorted(store.seqs)])
    cells = cells.take(np.flatnonzero(np.isin(cells.page_id, np.array(movable, np.int32))))
    _, first = np.unique(cells.key(), return_index=True)
    return cells.take(np.sort(first))


def _moved(table: SeqRuns, source: Cells, target: Cells) -> SeqRuns:
    """The same sequence with cells of source found in target."""
    cells = table.cells()
    order = np.argsort(source.key())
    keys = source.key()[order]
    at = np.minimum(np.searchsorted(keys, cells.key()), len(keys) - 1)
    index = np.flatnonzero(keys[at] == cells.key())
    if not len(index):
        return table
    found = target.take(order[at[index]])
    return from_cells(cells.replaced(index, found.with_delta(cells.delta[index])), table.frame, table.images)


def _copied(store: KVStore, source: Cells, rope: RopeShift | None) -> Cells:
    """Fresh cells with the content of source; with rope, K rotated by each cell's delta. Positions stay."""
    store.pages.begin()
    try:
        ranges = store.take(len(source))
        target = cells_of_ranges(ranges, source.pos, 0)
        for i in range(0, len(source), _COPY_CELLS):
            part = slice(i, i + _COPY_CELLS)
            _copy(store.layout, source.take(part), target.take(part), rope)
    except BaseException:
        store.pages.rollback()
        raise
    store.pages.commit()
    return target


def _copy(layout: KVLayout, source: Cells, target: Cells, rope: RopeShift | None) -> None:
    n = len(source)
    data = np.empty(n * layout.cell_bytes, np.uint8)
    gather_cells(layout.row_bytes, source.page, source.cell, data)
    for layer in layout.layers if rope is not None else ():
        if rope is not None and rope.rotates(layer.il):
            _rotate(layout, layer.il, data, n, source.delta, rope)
    scatter_cells(layout.row_bytes, data, target.page, target.cell)


def _rotate(layout: KVLayout, il: int, data: U8Array, n: int, delta: I32Array, rope: RopeShift) -> None:
    """Rotate layer il's K in a buffer laid out like a page of n cells."""
    layer = layout.layer(il)
    rows = data[layout.k_off(il, n) : layout.v_off(il, n)]
    values: F32Array = np.empty((layer.n_head_kv * n, layer.d_k), np.float32)
    decode_rows(layout.type_k, rows, values)
    k = np.ascontiguousarray(values.reshape(layer.n_head_kv, n, layer.d_k).transpose(1, 0, 2))
    rope.rotate(il, k, delta)
    encode_rows(layout.type_k, np.ascontiguousarray(k.transpose(1, 0, 2)).reshape(values.shape), rows)
