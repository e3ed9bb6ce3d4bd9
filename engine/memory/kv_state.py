"""Cells of stores as blocks of a state file, and as a digest.

    KVHD  u32 1 for all sequences, 0 for one | u32 n_stores | u32 type of K | u32 type of V | the cache's fingerprint
    per store:
    CELL  u32 n_cells | u32 n_seq | per sequence: i32 seq_id, i32 frame, u32 n_runs, u32 n_images, i32[n_runs][5]: first
          row, count, first position, step (0 or 1), delta; i32[n_images][4]: position, reach, last row, last column
    ROWS  K and V of the cells, 64 at a time in the layout of a page, the last ones in that of a page with fewer cells

Cells that several sequences share are written once. For a session's file, which keeps rows from save to save, there is
no ROWS: the first rows of the runs are those of the file. Rows go straight from page to file and from file to page where 64
cells that follow each other are one page.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from cext.pages import gather_cells, scatter_cells
from engine.errors import ParamError, StateMismatchError
from engine.io import BlockReader, BlockWriter, Payload
from engine.memory.base import MemoryParams, RunArray
from engine.memory.cells import TURN_MAX, Cells, SeqRuns, cells_of_ranges, from_cells, join_cells
from engine.memory.images import Image, Images
from engine.memory.kv_convert import convert_cells
from engine.memory.kv_log import RowReader, angles_of, is_page, load_from_log
from engine.memory.kv_store import KVStore
from engine.memory.layout import PAGE_CELLS, KVLayout
from engine.memory.row_log import CellRows, RowSink, RowSource
from engine.types import I64Array, QuantType

_HEAD = struct.Struct("<IIII")
_CELL = struct.Struct("<II")
_SEQ = struct.Struct("<iiII")
_RUN_FIELDS = ("first", "count", "pos0", "step", "delta")
_FINGERPRINT_MAX = 1 << 20


def save_stores(fingerprint: str, stores: Sequence[KVStore], writer: BlockWriter, seq_id: int | None) -> None:
    """Write one sequence, or all."""
    write_head(writer, fingerprint, [store.layout for store in stores], is_full=seq_id is None)
    for store in stores:
        seq_ids = sorted(store.seqs) if seq_id is None else [s for s in (seq_id,) if s in store.seqs]
        written = {s: store.seqs[s].cells() for s in seq_ids}
        everything = join_cells(list(written.values()))
        _, first = np.unique(everything.key(), return_index=True)
        rows = everything.take(np.sort(first))
        tables = {
            s: from_cells(_in_rows(cells, rows), store.seqs[s].frame, store.seqs[s].images)
            for s, cells in written.items()
        }
        write_store(writer, store.layout, len(rows), tables, _row_parts(store, rows))


def save_to_log(fingerprint: str, stores: Sequence[KVStore], writer: BlockWriter, seq_id: int, sink: RowSink) -> None:
    """Write the tables of one sequence; rows go to a file that has those of earlier saves."""
    layouts = [sink.layout(store.layout) for store in stores]
    write_head(writer, fingerprint, layouts, is_full=False)
    for i, (store, layout) in enumerate(zip(stores, layouts, strict=True)):
        table = store.table(seq_id)
        cells = table.cells()
        n_rows, rows = sink.put(i, CellRows(layout, angles_of(table), RowReader(store, cells, layout).read))
        nowhere = np.zeros(len(cells), np.int32)
        there = Cells(np.zeros(len(cells), np.uint64), nowhere, rows.astype(np.int32), cells.pos, cells.delta)
        tables = {seq_id: from_cells(there, table.frame, table.images)} if len(cells) else {}
        write_tables(writer, n_rows, tables)


def write_head(writer: BlockWriter, fingerprint: str, layouts: Sequence[KVLayout], *, is_full: bool) -> None:
    """Write the block that says what the cells of the stores are."""
    head = _HEAD.pack(is_full, len(layouts), layouts[0].type_k, layouts[0].type_v) + fingerprint.encode()
    writer.block(b"KVHD", [head], len(head))


def write_store(
    writer: BlockWriter, layout: KVLayout, n_rows: int, tables: Mapping[int, SeqRuns], row_parts: Iterable[Payload]
) -> None:
    """Write the blocks of one store.

    Args:
        layout: of the rows; n_rows: how many.
        tables: the runs of each sequence, whose cells are indices of rows.
        row_parts: K and V of the rows, 64 at a time.
    """
    write_tables(writer, n_rows, tables)
    writer.block(b"ROWS", row_parts, n_rows * layout.cell_bytes)


def write_tables(writer: BlockWriter, n_rows: int, tables: Mapping[int, SeqRuns]) -> None:
    """Write the block that says which rows are a sequence's, and where."""
    parts = [_CELL.pack(n_rows, len(tables))]
    for s in sorted(tables):
        runs, images = tables[s].runs, tables[s].images
        parts.append(_SEQ.pack(s, tables[s].frame, len(runs), len(images)))
        parts.append(np.stack([runs[name] for name in _RUN_FIELDS], 1).astype("<i4").tobytes())
        parts.append(np.array(images, "<i4").tobytes())
    writer.block(b"CELL", parts, sum(len(part) for part in parts))


def load_stores(
    fingerprint: str,
    stores: Sequence[KVStore],
    reader: BlockReader,
    seq_id: int | None,
    params: MemoryParams,
    convert_kv: bool = False,
    source: RowSource | None = None,
) -> dict[int, tuple[SeqRuns, ...]]:
    """Read what `save_stores` wrote into cells of the stores, in transactions of their pages that are left open.

    Args:
        source: has the rows, where `save_to_log` wrote the tables.

    Raises: StateFileError kinds; ContextFullError, OutOfMemoryError: no room. Roll the pages back then.
    """
    head = reader.whole(b"KVHD", _FINGERPRINT_MAX)
    if len(head) < _HEAD.size:
        raise reader.error("the cache's header is too short")
    is_full, n_stores, type_k, type_v = _HEAD.unpack_from(head)
    found = head[_HEAD.size :].decode(errors="replace")
    if found != fingerprint or n_stores != len(stores):
        raise StateMismatchError(f"made for another cache: '{found[:200]}', this is '{fingerprint[:200]}'", reader.name)
    if is_full != (seq_id is None):
        raise reader.error("holds all sequences, not one" if is_full else "holds one sequence, not all")
    saved = [_saved_layout(store.layout, type_k, type_v, reader, convert_kv) for store in stores]
    columns: list[dict[int, SeqRuns]] = []
    for i, (store, layout) in enumerate(zip(stores, saved, strict=True)):
        n_cells, over_rows = _read_tables(reader, seq_id, params)
        store.pages.begin()
        if source is None:
            columns.append(_load_rows(store, layout, reader, n_cells, over_rows))
        else:
            columns.append(load_from_log(store, layout, i, over_rows, source))
    tables: dict[int, tuple[SeqRuns, ...]] = {}
    for s in columns[0]:
        of_seq = tuple(column.get(s, SeqRuns()) for column in columns)
        if len({(table.frame, table.pos_max()) for table in of_seq}) != 1:
            raise reader.error(f"the caches differ in sequence {s}")
        tables[s] = of_seq
    if any(column.keys() != columns[0].keys() for column in columns):
        raise reader.error("the caches have different sequences")
    return {seq_id: tuple(SeqRuns() for _ in stores)} if seq_id is not None and not tables else tables


def _saved_layout(here: KVLayout, type_k: int, type_v: int, reader: BlockReader, convert_kv: bool) -> KVLayout:
    """The layout that the rows were written in.

    Raises: StateFileError: no cache types; StateMismatchError: others than here, and no conversion was asked for.
    """
    try:
        saved = KVLayout(here.layers, QuantType(type_k), QuantType(type_v))
    except (ValueError, ParamError) as error:
        raise reader.error(f"the cache types cannot be: {error}") from None
    if (saved.type_k, saved.type_v) != (here.type_k, here.type_v) and not convert_kv:
        was, now = (f"K {x.type_k.name.lower()}, V {x.type_v.name.lower()}" for x in (saved, here))
        raise StateMismatchError(
            f"made with another cache type, to be converted if asked: {was}, here {now}", reader.name
        )
    return saved


def state_hash(stores: Sequence[KVStore]) -> bytes:
    """Digest of every sequence's positions, K and V, whatever pages they lie in."""
    digest = hashlib.blake2b(digest_size=32)
    for store in stores:
        for seq_id in sorted(store.seqs):
            table = store.seqs[seq_id]
            cells = table.cells()
            digest.update(_SEQ.pack(seq_id, table.frame, len(cells), len(table.images)))
            digest.update(np.array(table.images, "<i4").tobytes())
            digest.update(cells.pos.tobytes())
            digest.update(cells.delta.tobytes())
            for part in _row_parts(store, cells):
                digest.update(part)
    return digest.digest()


def _in_rows(cells: Cells, rows: Cells) -> Cells:
    """Cells as places in the written rows: page 0, cell = index of the row."""
    order = np.argsort(rows.key())
    index = order[np.searchsorted(rows.key()[order], cells.key())].astype(np.int32)
    return Cells(np.zeros(len(cells), np.uint64), np.zeros(len(cells), np.int32), index, cells.pos, cells.delta)


def _row_parts(store: KVStore, cells: Cells) -> Iterator[memoryview]:
    """K and V of cells, 64 at a time, from the page itself where that can be. A part lasts until the next one."""
    buffer = np.empty(PAGE_CELLS * store.layout.cell_bytes, np.uint8)
    for i in range(0, len(cells), PAGE_CELLS):
        group = cells.take(slice(i, i + PAGE_CELLS))
        if is_page(group):
            yield store.pages.pool.view(int(group.page_id[0])).data
        else:
            part = buffer[: len(group) * store.layout.cell_bytes]
            gather_cells(store.layout.row_bytes, group.page, group.cell, part)
            yield part.data


def _read_tables(reader: BlockReader, seq_id: int | None, params: MemoryParams) -> tuple[int, dict[int, SeqRuns]]:
    """The number of rows of a store, and the runs of each sequence over them."""
    n_bytes = reader.begin(b"CELL")
    n_cells, n_seq = _CELL.unpack(reader.read(_CELL.size))
    if n_seq > (params.n_seq_max if seq_id is None else 1):
        raise reader.error(f"{n_seq} sequences do not fit here")
    saved: dict[int, SeqRuns] = {}
    for _ in range(n_seq):
        found, frame, n_runs, n_images = _SEQ.unpack(reader.read(_SEQ.size))
        if n_runs * 20 + n_images * 16 > n_bytes:
            raise reader.error(f"{n_runs} runs and {n_images} images do not fit into {n_bytes:,} bytes")
        fields = reader.read_array(np.dtype("<i4"), n_runs * 5).reshape(n_runs, 5).astype(np.int64)
        images = tuple(Image(*row) for row in reader.read_array(np.dtype("<i4"), n_images * 4).reshape(-1, 4).tolist())
        target = found if seq_id is None else seq_id
        if target in saved or not 0 <= target < params.n_seq_max:
            raise reader.error(f"sequence {target} is out of range or there twice")
        saved[target] = _checked(fields, frame, n_cells, params.n_ctx, reader).with_images(images)
        if not _are_images_of(saved[target], images, params.n_ctx):
            raise reader.error("the images of a sequence are inconsistent")
    reader.end()
    return n_cells, saved


def _load_rows(
    store: KVStore, saved_layout: KVLayout, reader: BlockReader, n_cells: int, tables: dict[int, SeqRuns]
) -> dict[int, SeqRuns]:
    """Read all rows of a store into cells, inside a transaction of its pages."""
    if reader.begin(b"ROWS") != n_cells * saved_layout.cell_bytes:
        raise reader.error(f"keys and values are not those of {n_cells:,} cells")
    if n_cells > sum(table.n_cells for table in tables.values()):
        raise reader.error("cells without a sequence")
    places = cells_of_ranges(store.take(n_cells), np.zeros(n_cells, np.int32), 0)
    _read_rows(store, saved_layout, reader, places)
    reader.end()
    return {s: _placed(table, places) for s, table in tables.items()}


def _checked(fields: I64Array, frame: int, n_cells: int, n_ctx: int, reader: BlockReader) -> SeqRuns:
    """Runs over rows, from the file's numbers, each of which is looked at."""
    first, count, pos0, step, delta = fields.T
    last = pos0 + (count - 1) * step
    sound = (
        len(fields) > 0
        and bool(((first >= 0) & (count > 0) & (first + count <= n_cells)).all())
        and bool(((pos0 >= 0) & (step >= 0) & (step <= 1)).all())
        and bool((pos0[1:] >= last[:-1]).all())
        and bool((np.abs(delta) <= TURN_MAX).all())
        and abs(frame) <= TURN_MAX
        and int(delta[-1]) == 0
        and int(count.sum()) <= n_cells
    )
    if not sound:
        raise reader.error("the runs of a sequence are inconsistent")
    if int(last[-1]) >= n_ctx:
        raise StateMismatchError(f"has position {int(last[-1])}, this context has {n_ctx}", reader.name)
    runs: RunArray = np.zeros(len(fields), SeqRuns().runs.dtype)
    for i, name in enumerate(_RUN_FIELDS):
        runs[name] = fields[:, i]
    table = SeqRuns(runs, frame)
    if len(np.unique(table.cells().cell)) != table.n_cells:
        raise reader.error("a sequence has a cell twice")
    return table


def _are_images_of(table: SeqRuns, images: Images, n_ctx: int) -> bool:
    """Whether these are images at positions of the table, in order, that end within the context."""
    pos = [image.pos for image in images]
    return (
        all(a < b for a, b in pairwise(pos))
        and bool(np.isin(pos, table.cells().pos).all())
        and all(i.pos <= i.reach < n_ctx and 0 <= i.row <= i.reach and 0 <= i.column <= i.reach for i in images)
    )


def _read_rows(store: KVStore, saved_layout: KVLayout, reader: BlockReader, places: Cells) -> None:
    here = store.layout
    is_same = (saved_layout.type_k, saved_layout.type_v) == (here.type_k, here.type_v)
    buffer = np.empty(PAGE_CELLS * saved_layout.cell_bytes, np.uint8)
    for i in range(0, len(places), PAGE_CELLS):
        group = places.take(slice(i, i + PAGE_CELLS))
        if is_same and is_page(group):
            reader.read_into(store.pages.pool.view(int(group.page_id[0])))
            continue
        part = buffer[: len(group) * saved_layout.cell_bytes]
        reader.read_into(part)
        if not is_same:
            part = convert_cells(saved_layout, here, part, len(group))
        scatter_cells(here.row_bytes, part, group.page, group.cell)


def _placed(table: SeqRuns, places: Cells) -> SeqRuns:
    """Runs over rows as runs over the cells that the rows were read to."""
    cells = table.cells()
    there = places.take(cells.cell.astype(np.int64))
    return from_cells(Cells(there.page, there.page_id, there.cell, cells.pos, cells.delta), table.frame, table.images)
