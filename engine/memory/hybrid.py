"""`HybridMemory`: keys and values for some layers, recurrent states for the others, always in step.

The states are asked first, for they are the ones that refuse; nothing changes where either would.
"""

from __future__ import annotations

from dataclasses import replace

from cext.pages import PageBudget
from engine.batch import UBatch
from engine.batch_split import SplitPolicy
from engine.errors import ParamError
from engine.io import BlockReader
from engine.memory.base import MemoryCaps, MemoryParams, MemorySpec, Placement
from engine.memory.kv_iswa import KVCacheISWA
from engine.memory.kv_unified import KVCacheUnified
from engine.memory.pair import PairMemory, PairStagedLoad, PairTx
from engine.memory.ranges import resolved_range
from engine.memory.recurrent import RecurrentMemory
from engine.memory.row_log import RowSource
from engine.types import QuantType


class HybridMemory(PairMemory[RecurrentMemory]):
    """A cache and recurrent states.

    Args:
        cache: of the attention layers.
        other: the states of the recurrent layers.
    """

    split_policy = SplitPolicy.EQUAL

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams) -> HybridMemory:
        """An empty memory, both parts under one budget. Raises: ParamError: a cache type that a head size forbids."""
        budget = PageBudget(params.kv_bytes_max)
        kind = KVCacheISWA if spec.swa_layers else KVCacheUnified
        return cls(kind.create(spec, params, budget), RecurrentMemory.create(spec, params, budget))

    @property
    def states(self) -> RecurrentMemory:
        """The recurrent layers' states."""
        return self.other

    @property
    def fingerprint(self) -> str:
        """Names both parts."""
        return f"hybrid;{self.cache.fingerprint};{self.states.fingerprint}"

    @property
    def caps(self) -> MemoryCaps:
        """What both can do."""
        a, b = self.cache.caps, self.states.caps
        return MemoryCaps(a.shift and b.shift, a.divide and b.divide, a.remove_middle and b.remove_middle)

    def cache_of(self, il: int) -> int:
        """Index of the cache that keeps layer il."""
        return self.cache.cache_of(il)

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off) of layer il in a page of its cache."""
        return self.cache.kv_offsets(il)

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_v) of layer il."""
        return self.cache.kv_types(il)

    def state_offsets(self, il: int) -> tuple[int, int]:
        """(r_off, s_off) of layer il in a slot."""
        return self.states.state_offsets(il)

    def seq_ids(self) -> tuple[int, ...]:
        """The sequences, ascending."""
        return self.cache.seq_ids()

    def seq_pos_min(self, seq_id: int) -> int:
        """The oldest position that both have: the state's."""
        return max(self.cache.seq_pos_min(seq_id), self.states.seq_pos_min(seq_id))

    def seq_pos_max(self, seq_id: int) -> int:
        """The newest position that both have, or -1."""
        return min(self.cache.seq_pos_max(seq_id), self.states.seq_pos_max(seq_id))

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos where both can go on, or 0."""
        while (at := self.states.seq_pos_reentry(seq_id, pos)) and self.cache.seq_pos_reentry(seq_id, at) != at:
            pos = at - 1
        return at

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove a whole sequence, or a tail behind a snapshot; False: cannot, nothing changed."""
        if self.states.removed(seq_id, p0, p1) is None or not self.cache.seq_rm(seq_id, p0, p1):
            return False
        return self.states.seq_rm(seq_id, p0, p1)

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        """Replace dst by src. Raises: ParamError: the range is not all of src, for a state has no parts."""
        lo, hi = resolved_range(p0, p1)
        begin, end = self.cache.stores[0].table(seq_id_src).pos_min(), self.seq_pos_max(seq_id_src)
        if end < 0 or seq_id_src == seq_id_dst:
            return
        if lo > begin or hi <= end:
            raise ParamError(f"positions {lo} to {hi} are not all of sequence {seq_id_src}, and a state has no parts")
        self.cache.seq_cp(seq_id_src, seq_id_dst, 0, -1)
        self.states.seq_cp(seq_id_src, seq_id_dst, 0, -1)

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move the range by delta positions; the states stay what they are."""
        self.cache.seq_add(seq_id, p0, p1, delta)
        self.states.seq_add(seq_id, p0, p1, delta)

    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        """Divide the positions of the range, rounding down; the states stay what they are."""
        self.cache.seq_div(seq_id, p0, p1, divisor)
        self.states.seq_div(seq_id, p0, p1, divisor)

    def defrag(self) -> None:
        """Ask for the cells to be compacted."""
        self.cache.defrag()

    def prepare(self, n_tokens: int) -> None:
        """Carry out pending work and make room in both."""
        self.states.prepare(n_tokens)
        self.cache.prepare(n_tokens)

    def update(self, n_tokens: int = 0) -> bool:
        """Carry out all pending work and make room in both."""
        return self.states.update(n_tokens) | self.cache.update(n_tokens)

    def begin(self) -> HybridTx:
        """Open the one transaction that may be open at a time."""
        return HybridTx(self.cache.begin(), self.states.begin())

    def clone(self) -> HybridMemory:
        """The same content, sharing pages and slots."""
        return HybridMemory(self.cache.clone(), self.states.clone())

    def load(
        self,
        reader: BlockReader,
        seq_id: int | None = None,
        convert_kv: bool = False,
        source: RowSource | None = None,
    ) -> PairStagedLoad:
        """Read and stage what `save` wrote."""
        cache, states = self._load_both(reader, seq_id, convert_kv, source)
        staged = PairStagedLoad(cache, states)
        if cache.ends() != states.ends():
            staged.discard()
            raise reader.error("the cache and the states end at different positions")
        return staged


class HybridTx(PairTx):
    """A decode's transaction on the cache, then on the states."""

    def place(self, ubatch: UBatch) -> Placement:
        """Give each token a cell and each segment its states."""
        states = self._second.place(ubatch).states
        return replace(self._first.place(ubatch), states=states)
