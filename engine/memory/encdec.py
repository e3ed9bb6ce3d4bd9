"""`EncDecMemory`: a decoder's cache and, for every sequence, the keys and values of its source.

The source is what an encoder made of a text: computed once for each encode, seen by every token of the sequence, saved,
copied and counted with it. Positions are those of the decoder; a source has its own, which nobody asks for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cext.pages import PageBudget
from engine.batch import UBatch
from engine.errors import BatchError, ParamError
from engine.io import BlockReader
from engine.memory.base import MemoryCaps, MemoryParams, MemorySpec, Placement, Tx
from engine.memory.cells import SeqRuns
from engine.memory.kv import KVCache
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.pair import PairMemory, PairStagedLoad
from engine.memory.ranges import resolved_range
from engine.memory.row_log import RowSource
from engine.types import QuantType


class EncDecMemory(PairMemory[KVCache]):
    """The memory of an encoder-decoder.

    Removing positions, all of them too, leaves a sequence its source, so that another answer to it can be made.
    A sequence lets go of its source when another one is encoded, by `clear` and by `seq_keep` of another sequence.

    Args:
        cache: of the decoder's own tokens.
        other: of the sources.
    """

    @classmethod
    def create(cls, spec: MemorySpec, source: MemorySpec, params: MemoryParams) -> EncDecMemory:
        """An empty memory, both parts under one budget. Raises: ParamError: a cache type that a head size forbids."""
        budget = PageBudget(params.kv_bytes_max)
        return cls(KVCacheUnified.create(spec, params, budget), KVCacheUnified.create(source, params, budget))

    @property
    def source(self) -> KVCache:
        """The cache of the sources."""
        return self.other

    @property
    def fingerprint(self) -> str:
        """Names both parts."""
        return f"encdec;{self.cache.fingerprint};{self.source.fingerprint}"

    @property
    def caps(self) -> MemoryCaps:
        """What the decoder's cache can do."""
        return self.cache.caps

    def _part(self, il: int) -> KVCache:
        return self.cache if self.cache.stores[0].layout.has(il) else self.source

    def cache_of(self, il: int) -> int:
        """0 for the decoder's own layers, 1 for those that look at the source."""
        return 0 if self._part(il) is self.cache else 1

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off) of layer il in a page of its cache."""
        return self._part(il).kv_offsets(il)

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_v) of layer il."""
        return self._part(il).kv_types(il)

    # -- sizes and positions

    @property
    def used_cells(self) -> int:
        """Cells in use by the decoder, one that two sequences share counted once."""
        return self.cache.used_cells

    def n_source(self, seq_id: int) -> int:
        """Tokens of a sequence's source, 0 where it has none."""
        return self.source.tables(seq_id)[0].n_cells

    def have_same_source(self, seq_id: int, other: int) -> bool:
        """Whether two sequences share the cells of one source."""
        tables: list[SeqRuns] = [self.source.tables(s)[0] for s in (seq_id, other)]
        return np.array_equal(tables[0].cells().key(), tables[1].cells().key())

    def seq_ids(self) -> tuple[int, ...]:
        """The sequences that have cells or a source, ascending."""
        return tuple(sorted({*self.cache.seq_ids(), *self.source.seq_ids()}))

    def seq_pos_min(self, seq_id: int) -> int:
        """The oldest position of the decoder, or -1."""
        return self.cache.seq_pos_min(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        """The newest position of the decoder, or -1."""
        return self.cache.seq_pos_max(seq_id)

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos for which removing [p, end) works."""
        return self.cache.seq_pos_reentry(seq_id, pos)

    # -- sequence operations

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove the decoder's cells of a range; the source stays."""
        return self.cache.seq_rm(seq_id, p0, p1)

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        """Make the range of dst what it is in src, and give dst the source of src.

        Raises: ParamError: dst has cells outside of the range that were computed for another source.
        """
        if seq_id_src != seq_id_dst and not self.have_same_source(seq_id_src, seq_id_dst):
            lo, hi = resolved_range(p0, p1)
            table = self.cache.tables(seq_id_dst)[0]
            if table.n_cells and (
                table.pos_min() < lo
                or table.pos_max() >= hi
                or not self.cache.tables(seq_id_src)[0].kept(lo, hi).n_runs
            ):
                raise ParamError(f"sequences {seq_id_src} and {seq_id_dst} have different sources; remove the second")
        self.cache.seq_cp(seq_id_src, seq_id_dst, p0, p1)
        self.source.seq_cp(seq_id_src, seq_id_dst, 0, -1)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move the decoder's range by delta positions."""
        self.cache.seq_add(seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        """Divide the positions of the decoder's range, rounding down."""
        self.cache.seq_div(seq_id, p0, p1, divisor)

    # -- pending work

    def defrag(self) -> None:
        """Ask for the cells of both to be compacted."""
        self.cache.defrag()
        self.source.defrag()

    def prepare(self, n_tokens: int) -> None:
        """Carry out pending work and make room for a decode."""
        self.cache.prepare(n_tokens)
        self.source.prepare(0)

    def update(self, n_tokens: int = 0) -> bool:
        """Carry out all pending work of both; room is made in the decoder's cache."""
        return self.cache.update(n_tokens) | self.source.update()

    # -- transaction, copies, state

    def begin(self) -> EncDecTx:
        """Open the one transaction of a decode that may be open at a time."""
        return EncDecTx(self)

    def clone(self) -> EncDecMemory:
        """The same content, sharing pages; from now on each side writes only pages of its own."""
        return EncDecMemory(self.cache.clone(), self.source.clone())

    def load(
        self,
        reader: BlockReader,
        seq_id: int | None = None,
        convert_kv: bool = False,
        source: RowSource | None = None,
    ) -> PairStagedLoad:
        """Read and stage what `save` wrote.

        Raises: StateFileError: unusable, tokens without a source too. Nothing changed.
        """
        cache, encoded = self._load_both(reader, seq_id, convert_kv, source)
        staged = PairStagedLoad(cache, encoded)
        if cache.ends().keys() - encoded.ends().keys():
            staged.discard()
            raise reader.error("a sequence has tokens but no source")
        return staged


class EncDecTx(Tx):
    """A decode's transaction: only the decoder's cells change, the sources are looked at."""

    def __init__(self, memory: EncDecMemory) -> None:
        self._memory = memory
        self._tx = memory.cache.begin()

    def place(self, ubatch: UBatch) -> Placement:
        """Give each token a cell, and show it the cells of its sequence's source.

        Raises: BatchError: a sequence without a source, or sequences with different ones share a token.
        """
        memory = self._memory
        for ids in set(ubatch.seq_ids):
            if not memory.n_source(ids[0]):
                raise BatchError(f"sequence {ids[0]} has no source to decode from: encode it first")
            for seq_id in ids[1:]:
                if not memory.have_same_source(ids[0], seq_id):
                    raise BatchError(f"sequences {ids[0]} and {seq_id} share a token but have different sources")
        placed = self._tx.place(ubatch)
        source = memory.source.stores[0].seen_by(ubatch, placed.kv[0].pages, placed.kv[0].cells)
        return replace(placed, kv=(*placed.kv, source))

    def commit(self) -> None:
        """Keep everything that was placed."""
        self._tx.commit()

    def rollback(self) -> None:
        """Bring back exactly the state that `begin` saw."""
        self._tx.rollback()
