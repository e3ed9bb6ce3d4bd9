"""`EncoderMemory`: what an encoder needs while it computes, and the transaction that leaves its results with a decoder."""

from __future__ import annotations

from dataclasses import replace

from engine.batch import UBatch
from engine.memory.base import Placement, Tx
from engine.memory.encdec import EncDecMemory
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.pair import PairTx
from engine.types import QuantType


class EncoderMemory(KVCacheUnified):
    """An encoder's cache, which forgets after each encode, and the decoder's memory that its results go to.

    Attributes:
        target: the memory that gets sources; None for an encoder without a decoder.
    """

    target: EncDecMemory | None = None

    def cache_of(self, il: int) -> int:
        """0 for the encoder's own layers, 1 for what it stores for the decoder."""
        return 0 if self.stores[0].layout.has(il) else 1

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off) of layer il in a page of its cache."""
        return super().kv_offsets(il) if self.target is None or not self.cache_of(il) else self.target.kv_offsets(il)

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_v) of layer il."""
        return super().kv_types(il) if self.target is None or not self.cache_of(il) else self.target.kv_types(il)

    def prepare(self, n_tokens: int) -> None:
        """Carry out pending work of the target too."""
        super().prepare(n_tokens)
        if self.target is not None:
            self.target.prepare(0)

    def begin(self) -> Tx:
        """Open a transaction that replaces the sources of the sequences it meets."""
        return super().begin() if self.target is None else EncodeTx(super().begin(), self.target)


class EncodeTx(PairTx):
    """An encode's transaction: sequences get new sources, and begin anew when it is committed."""

    def __init__(self, scratch: Tx, target: EncDecMemory) -> None:
        super().__init__(scratch, target.source.begin())
        self._target = target
        self._seq_ids: set[int] = set()

    def place(self, ubatch: UBatch) -> Placement:
        """Give each token a cell of the encoder's, and one of its sequence's new source."""
        store = self._target.source.stores[0]
        for seq_id in {seq_id for ids in ubatch.seq_ids for seq_id in ids} - self._seq_ids:
            store.forget(seq_id)
            self._seq_ids.add(seq_id)
        placed = self._first.place(ubatch)
        return replace(placed, kv=(*placed.kv, *self._second.place(ubatch).kv))

    def commit(self) -> None:
        """Keep the sources; what was decoded for the old ones goes."""
        super().commit()
        self._target.source.stores[0].install({})
        for seq_id in self._seq_ids:
            self._target.cache.seq_rm(seq_id, -1, -1)
