"""The cells of one cache: the pages it holds and the runs of each sequence. Knows nothing of layers' windows.

A memory has one store for all layers, or one for each kind of layer; transactions and sequence operations go through
all stores of a memory in step.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from cext.pages import PageSet, PagesFullError
from engine.batch import UBatch
from engine.errors import ContextFullError, OutOfMemoryError
from engine.memory.base import KVPlacement, RunArray, U64Array
from engine.memory.cells import RUN_DTYPE, SEGMENT_DTYPE, CellRange, SeqRuns, cells_of_ranges
from engine.memory.images import with_cells
from engine.memory.layout import KVLayout
from engine.types import I32Array

_EMPTY = SeqRuns()
_SEGMENT = struct.Struct("=iiqq")


class KVStore:
    """Cells and sequences of one cache.

    Args:
        layout: of its pages.
        pages: the pages it holds.
        seqs: its sequences, taken over.
    """

    def __init__(self, layout: KVLayout, pages: PageSet, seqs: dict[int, SeqRuns] | None = None) -> None:
        self.layout, self.pages = layout, pages
        self.seqs: dict[int, SeqRuns] = seqs if seqs is not None else {}
        self._journal: dict[int, tuple[SeqRuns | None, tuple[int, int, int]]] = {}

    def table(self, seq_id: int) -> SeqRuns:
        """The runs of a sequence; of one that does not exist, none. Not to be changed."""
        return self.seqs.get(seq_id, _EMPTY)

    def clone(self) -> KVStore:
        """The same content, sharing pages."""
        return KVStore(self.layout, self.pages.share(), {seq_id: table.copy() for seq_id, table in self.seqs.items()})

    def install(self, tables: Mapping[int, SeqRuns]) -> None:
        """Give sequences other runs, of cells that this store holds; pages left without any are let go."""
        for seq_id, table in tables.items():
            if table.n_runs:
                self.seqs[seq_id] = table
            else:
                self.seqs.pop(seq_id, None)
        self.pages.rebuild(table.runs for table in self.seqs.values())

    # -- transaction

    def begin(self) -> None:
        """Remember this state for `rollback`."""
        self._journal.clear()
        self.pages.begin()

    def commit(self) -> tuple[int, ...]:
        """Keep what was placed: the sequences that it went to."""
        touched = tuple(self._journal)
        self._journal.clear()
        self.pages.commit()
        return touched

    def rollback(self) -> None:
        """Bring back what `begin` saw."""
        for seq_id, (table, mark) in self._journal.items():
            if table is None:
                self.seqs.pop(seq_id, None)
            else:
                table.reset(mark)
                self.seqs[seq_id] = table
        self._journal.clear()
        self.pages.rollback()

    def take(self, n: int, page_id: int = -1, after: int = 0) -> list[CellRange]:
        """n cells, those behind a given one first. Inside a transaction of the pages.

        Raises: ContextFullError, OutOfMemoryError: some may be taken then; roll back.
        """
        try:
            return [CellRange(*r) for r in self.pages.take_cells(page_id, after, n)]
        except PagesFullError:
            raise ContextFullError(n, self.pages.free_cells) from None
        except MemoryError:
            raise OutOfMemoryError(self.layout.page_bytes, "the KV cache") from None

    def place(self, ubatch: UBatch) -> KVPlacement:
        """Give each token a cell, at the end of its sequences where its position allows that."""
        pages, cells = np.empty(ubatch.n_tokens, np.uint64), np.empty(ubatch.n_tokens, np.int32)
        for seq_id, t0, n in ubatch.segments:
            table = self._touch(seq_id)
            page_id, cell, pos_max = table.tail()
            ranges = self.take(n, page_id, cell)
            t = t0
            for page, _, first, count in ranges:
                pages[t : t + count] = page
                cells[t : t + count] = first if count == 1 else np.arange(first, first + count)
                t += count
            self._add(seq_id, table, ranges, ubatch.pos[t0 : t0 + n], pos_max)
            for ids in ubatch.seq_ids[t0 : t0 + n]:
                if len(ids) > 1:
                    self._share(seq_id, ranges, ubatch.pos[t0 : t0 + n], ubatch.seq_ids[t0 : t0 + n])
                    break
            if ubatch.axes is not None:
                self._add_images(ubatch.axes[t0 : t0 + n], ubatch.seq_ids[t0 : t0 + n])
        return self.seen_by(ubatch, pages, cells)

    def seen_by(self, ubatch: UBatch, pages: U64Array, cells: I32Array) -> KVPlacement:
        """What the tokens of a ubatch, whose own cells are given, see: the cells of their sequences."""
        tables = [self.seqs[seq_id] for seq_id, _, _ in ubatch.segments]
        segments = b""
        run0 = 0
        for table, (_, t0, n) in zip(tables, ubatch.segments, strict=True):
            segments += _SEGMENT.pack(t0, n, run0, table.n_runs)
            run0 += table.n_runs
        pos = ubatch.pos
        if any(table.images for table in tables):
            pos, runs = _numbered(ubatch, tables)
        else:
            runs = np.concatenate([table.words for table in tables]).view(RUN_DTYPE)
        return KVPlacement(pages, cells, pos, runs, np.frombuffer(segments, SEGMENT_DTYPE))

    def forget(self, seq_id: int) -> None:
        """Empty a sequence inside a transaction; its pages are held until it ends, and `install` lets them go."""
        self._touch(seq_id)
        self.seqs[seq_id] = SeqRuns()

    def _touch(self, seq_id: int) -> SeqRuns:
        """The runs of a sequence, noted in the journal, to be appended to or replaced."""
        table = self.seqs.get(seq_id)
        if seq_id not in self._journal:
            self._journal[seq_id] = (None, (0, 0, 0)) if table is None else (table, table.mark())
        if table is None:
            table = self.seqs[seq_id] = SeqRuns()
        return table

    def _add(self, seq_id: int, table: SeqRuns, ranges: list[CellRange], pos: I32Array, pos_max: int) -> None:
        """Add cells of the sequence's own frame: in place at the end, else into a new table."""
        p0 = int(pos[0])
        if p0 >= pos_max and (len(pos) == 1 or (np.diff(pos) == 1).all()):
            for where in ranges:
                table.append(where, p0)
                p0 += where.n
        else:
            self.seqs[seq_id] = table.with_cells(cells_of_ranges(ranges, pos, 0))

    def _add_images(self, axes: I32Array, seq_ids: Sequence[tuple[int, ...]]) -> None:
        """Note the images that tokens, placed before, belong to."""
        for seq_id in sorted({seq_id for ids in seq_ids for seq_id in ids}):
            mine = np.array([seq_id in ids for ids in seq_ids])
            table = self.seqs[seq_id]
            self.seqs[seq_id] = table.with_images(with_cells(table.images, axes[mine]))

    def _share(self, seq_id: int, ranges: list[CellRange], pos: I32Array, seq_ids: Sequence[tuple[int, ...]]) -> None:
        """Let the other sequences of each token have its cell too."""
        frame = self.seqs[seq_id].frame
        for other in sorted({other for ids in seq_ids for other in ids} - {seq_id}):
            index = np.array([t for t, ids in enumerate(seq_ids) if other in ids], np.int64)
            table = self._touch(other)
            if not table.n_runs:
                table.frame = frame
            shared = cells_of_ranges(ranges, pos, table.frame - frame).take(index)
            self.seqs[other] = table.with_cells(shared)


def _numbered(ubatch: UBatch, tables: Sequence[SeqRuns]) -> tuple[I32Array, RunArray]:
    """Positions of the tokens, and runs of the tables, by the number of each cell where a table has images.

    Inside an image a token sees those before it, which stand at the same position.
    """
    pos = ubatch.pos.copy()
    for table, (_, t0, n) in zip(tables, ubatch.segments, strict=True):
        if table.images:
            pos[t0 : t0 + n] = np.arange(table.n_cells - n, table.n_cells)
    runs = [table.numbered() if table.images else table.runs for table in tables]
    return pos, np.concatenate(runs)
