"""`RecurrentMemory`: one state per sequence instead of cells, with snapshots to step back to.

A state cannot forget a part: removing a tail works where a snapshot stands right before it, removing anything else
than the whole is refused. New state goes to a fresh slot and becomes the sequence's at commit; the old slot stays as
it was until then. The state behind a prompt, and that before it, are kept as snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cext.pages import PageBudget, PagePool, PageSet, PagesFullError
from engine.batch import UBatch
from engine.batch_split import SplitPolicy
from engine.errors import BatchError, ContextFullError, OutOfMemoryError, ParamError, UnsupportedCallError
from engine.io import BlockReader, BlockWriter
from engine.memory.base import (
    POS_END,
    MemoryCaps,
    MemoryParams,
    MemorySpec,
    MemoryStats,
    Placement,
    StagedLoad,
    StatePlacement,
    Tx,
)
from engine.memory.checked import CheckedMemory
from engine.memory.layout import PAGE_CELLS
from engine.memory.ranges import resolved_range
from engine.memory.recurrent_state import load_states, save_states, states_hash
from engine.memory.row_log import RowSink, RowSource
from engine.memory.state_slots import SeqStates, Slot, StateLayout, runs_of
from engine.types import QuantType


class RecurrentMemory(CheckedMemory):
    """States of sequences.

    Args:
        spec: what the model needs.
        params: what the context decides.
        pages: the slots it holds.
        seqs: its sequences.

    Attributes:
        layout: where each layer's part stands in a slot.
    """

    split_policy = SplitPolicy.EQUAL

    def __init__(
        self, spec: MemorySpec, params: MemoryParams, pages: PageSet, seqs: Mapping[int, SeqStates] | None = None
    ) -> None:
        self.spec, self.params, self.pages = spec, params, pages
        self.layout = StateLayout(spec.states)
        self.seqs: dict[int, SeqStates] = dict(seqs or {})
        self._tx: RecurrentTx | RecurrentStagedLoad | None = None

    @classmethod
    def create(cls, spec: MemorySpec, params: MemoryParams, budget: PageBudget | None = None) -> RecurrentMemory:
        """An empty memory."""
        pool = PagePool(StateLayout(spec.states).slot_bytes, budget or PageBudget(params.kv_bytes_max), zeroed=False)
        return cls(spec, params, PageSet(pool))

    # -- identity and sizes

    @property
    def fingerprint(self) -> str:
        """Names the model, the kind and the layout."""
        return f"recurrent;{self.layout.describe()};{self.spec.fingerprint}"

    @property
    def caps(self) -> MemoryCaps:
        """Shifts by saying so: the state stays what it is."""
        return MemoryCaps(shift=self.spec.can_shift, divide=self.spec.can_shift, remove_middle=False)

    def cache_of(self, il: int) -> int:
        """Raises: UnsupportedCallError: there are no keys and values."""
        raise UnsupportedCallError("cache_of", "a recurrent memory")

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """Raises: UnsupportedCallError: there are no keys and values."""
        raise UnsupportedCallError("kv_offsets", "a recurrent memory")

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """Raises: UnsupportedCallError: there are no keys and values."""
        raise UnsupportedCallError("kv_types", "a recurrent memory")

    def state_offsets(self, il: int) -> tuple[int, int]:
        """(r_off, s_off): where layer il's short memory and state stand in a slot, in bytes."""
        return self.layout.offsets(il)

    def stats(self) -> MemoryStats:
        """Sizes; a slot counts as one cell."""
        n_pages = self.pages.n_pages
        return MemoryStats(n_pages, n_pages * self.layout.slot_bytes, n_pages, len(self.seqs))

    def need_bytes(self, n_tokens: int, n_ubatch: int) -> int:
        """Bytes of a sequence's state, its snapshots, and the fresh state of a transaction."""
        return (2 + self.params.n_snapshots) * self.pages.pool.stride_bytes

    def seq_ids(self) -> tuple[int, ...]:
        """The sequences that have a state, ascending."""
        return tuple(sorted(self.seqs))

    def seq_pos_min(self, seq_id: int) -> int:
        """The newest position too: a state has no older ones."""
        return self.seq_pos_max(seq_id)

    def seq_pos_max(self, seq_id: int) -> int:
        """The newest position, or -1."""
        states = self.seqs.get(self._seq(seq_id))
        return states.tail.pos if states else -1

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos right behind a snapshot, or 0."""
        states = self.seqs.get(self._seq(seq_id))
        return max((slot.pos + 1 for slot in states.slots if slot.pos < pos), default=0) if states else 0

    # -- sequence operations

    def clear(self, data: bool = False) -> None:
        """Forget all sequences."""
        self._idle()
        self._replace({})

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove a whole sequence, or a tail behind a snapshot; False: cannot, nothing changed."""
        self._idle()
        changed = self.removed(seq_id, p0, p1)
        if changed is None:
            return False
        self._update(changed)
        return True

    def removed(self, seq_id: int, p0: int, p1: int) -> dict[int, SeqStates | None] | None:
        """What `seq_rm` would change, or None where it cannot."""
        p0, p1 = resolved_range(p0, p1)
        changed: dict[int, SeqStates | None] = {}
        for s in self.seq_ids() if seq_id < 0 else (self._seq(seq_id),):
            states = self.seqs.get(s)
            if states is None or p0 > states.tail.pos or p1 <= states.pos0 or p0 == p1:
                continue
            if p1 <= states.tail.pos:
                return None
            changed[s] = None if p0 <= states.pos0 else states.back_at(p0 - 1)
            if p0 > states.pos0 and changed[s] is None:
                return None
        return changed

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        """Replace dst by src, sharing the state, whatever the range: a state has no parts."""
        self._idle()
        source = self.seqs.get(self._seq(seq_id_src))
        if source is not None and self._seq(seq_id_dst) != seq_id_src:
            self._update({seq_id_dst: source})

    def seq_keep(self, seq_id: int) -> None:
        """Forget every other sequence."""
        self._idle()
        self._seq(seq_id)
        self._replace({s: states for s, states in self.seqs.items() if s == seq_id})

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Call the positions of the range others; the state stays what it is, which is near enough."""
        self._idle()
        self._check_can_shift("seq_add")
        p0, p1 = resolved_range(p0, p1)
        if abs(delta) >= POS_END:
            raise ParamError(f"positions cannot move by {delta}")
        ids = self.seq_ids() if seq_id < 0 else (self._seq(seq_id),)
        changed = {s: self.seqs[s].moved(p0, p1, delta) for s in ids if s in self.seqs}
        if any(states is not None and states.tail.pos >= POS_END for states in changed.values()):
            raise ParamError(f"positions cannot move by {delta}")
        self._update(changed)

    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        """Divide the positions of the range, rounding down; the state stays what it is."""
        self._idle()
        self._check_can_shift("seq_div")
        if divisor < 1:
            raise ParamError(f"positions cannot be divided by {divisor}")
        p0, p1 = resolved_range(p0, p1)
        ids = self.seq_ids() if seq_id < 0 else (self._seq(seq_id),)
        self._update({s: self.seqs[s].divided(p0, p1, divisor) for s in ids if s in self.seqs})

    def _update(self, changed: Mapping[int, SeqStates | None]) -> None:
        merged = {**self.seqs, **changed}
        self._replace({s: states for s, states in merged.items() if states is not None})

    def _replace(self, seqs: Mapping[int, SeqStates]) -> None:
        self.seqs = dict(seqs)
        self.pages.rebuild([runs_of(self.seqs.values())])

    # -- pending work

    def defrag(self) -> None:
        """There is nothing to compact: a slot is one piece."""

    def prepare(self, n_tokens: int) -> None:
        """Let go of snapshots, oldest first, where slots for the next decode are missing."""
        self._idle()
        if not self.params.kv_bytes_max:
            return
        for n_snapshots in range(self.params.n_snapshots - 1, -1, -1):
            if self.pages.pool.n_free > len(self.seqs):
                return
            self._replace({s: states.thinned(n_snapshots) for s, states in self.seqs.items()})

    def update(self, n_tokens: int = 0) -> bool:
        """Make room; there is no other work."""
        self.prepare(n_tokens)
        return False

    # -- transaction, copies, state

    def begin(self) -> RecurrentTx:
        """Open the one transaction that may be open at a time."""
        self._idle()
        self._tx = tx = RecurrentTx(self)
        return tx

    def clone(self) -> RecurrentMemory:
        """The same content, sharing slots."""
        self._idle()
        return RecurrentMemory(self.spec, self.params, self.pages.share(), self.seqs)

    def close(self) -> None:
        """Let go of all slots."""
        if isinstance(self._tx, RecurrentTx):
            self._tx.rollback()
        elif self._tx is not None:
            self._tx.discard()
        self.clear()

    def state_hash(self) -> bytes:
        """Digest of every sequence's states and positions, snapshots included."""
        return states_hash(self.layout, self.pages, self.seqs)

    def save(self, writer: BlockWriter, seq_id: int | None = None, sink: RowSink | None = None) -> None:
        """Write the blocks of one sequence, or of all, snapshots included."""
        seqs = self.seqs if seq_id is None else {s: v for s, v in self.seqs.items() if s == self._seq(seq_id)}
        save_states(self.fingerprint, self.layout, self.pages, seqs, writer, seq_id is None)

    def load(
        self,
        reader: BlockReader,
        seq_id: int | None = None,
        convert_kv: bool = False,
        source: RowSource | None = None,
    ) -> RecurrentStagedLoad:
        """Read and stage what `save` wrote: one sequence as seq_id, or all. States are f32 always."""
        self._idle()
        if seq_id is not None:
            self._seq(seq_id)
        self._tx = staged = RecurrentStagedLoad(self)
        try:
            loaded = load_states(self.fingerprint, self.layout, self.pages, reader, seq_id, self.params)
        except BaseException:
            staged.discard()
            raise
        staged.loaded = loaded
        staged.kept = {} if seq_id is None else {s: v for s, v in self.seqs.items() if s != seq_id}
        return staged


class RecurrentTx(Tx):
    """A transaction: fresh slots, which become the sequences' at commit."""

    def __init__(self, memory: RecurrentMemory) -> None:
        self._memory = memory
        self._before = dict(memory.seqs)
        self._n_tokens: dict[int, int] = {}  # placed, by sequence
        self._holders: dict[int, frozenset[int]] = {}  # of the slots taken here, by page
        memory.pages.begin()

    def place(self, ubatch: UBatch) -> Placement:
        """Give each segment the state to go on from and a slot for the state behind it."""
        n = len(ubatch.segments)
        source, target = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
        for i, (seq_id, t0, n_tokens) in enumerate(ubatch.segments):
            ids = ubatch.seq_ids[t0]
            if any(other != ids for other in ubatch.seq_ids[t0 : t0 + n_tokens]):
                raise BatchError(f"tokens of sequence {seq_id} belong to different sequences; a state has no parts")
            pos = ubatch.pos[t0 : t0 + n_tokens]
            source[i], target[i] = self._place(ids, int(pos[0]), int(pos[-1]), n_tokens)
        return Placement((), ubatch.pos, StatePlacement(source, target, tuple(ubatch.segments)))

    def _place(self, ids: tuple[int, ...], first: int, last: int, n_tokens: int) -> tuple[int, int]:
        """(source, target) addresses for tokens that all these sequences share."""
        memory = self._memory
        if min(ids) < 0 or max(ids) >= memory.params.n_seq_max:
            raise BatchError(f"sequences {ids}: one is out of range, n_seq_max is {memory.params.n_seq_max}")
        if last >= memory.params.n_ctx:
            raise ContextFullError(last + 1, memory.params.n_ctx, "positions")
        there = [memory.seqs.get(s) for s in ids]
        states = there[0]
        if any((other and other.tail.page_id) != (states and states.tail.page_id) for other in there):
            raise BatchError(f"sequences {ids} share a token but have different states")
        if first < 0 or last < first or (states is not None and first <= states.tail.pos):
            raise BatchError(f"positions {first} to {last} of sequence {ids[0]} do not go on from its state")
        group = frozenset(ids)
        if states is not None and self._holders.get(states.tail.page_id) == group:
            slot = states.tail._replace(pos=last)
        else:
            slot = self._fresh(last)
        for s in ids:
            old = memory.seqs.get(s)
            kept = old.slots if old is not None and old.tail.page_id not in self._holders else ()
            if old is not None and old.tail.page_id in self._holders:
                # Others may read that slot in the same run: nobody writes to it any more.
                self._holders[old.tail.page_id] = frozenset()
                kept = old.slots[:-1]
            memory.seqs[s] = SeqStates(first if old is None else old.pos0, (*kept, slot))
            self._n_tokens[s] = self._n_tokens.get(s, 0) + n_tokens
        self._holders[slot.page_id] = group
        return (0 if states is None else states.tail.page), slot.page

    def _fresh(self, pos: int) -> Slot:
        memory = self._memory
        try:
            ((page, page_id, _, _),) = memory.pages.take_cells(-1, 0, PAGE_CELLS)
        except PagesFullError:
            raise ContextFullError(1, memory.pages.pool.n_free, "states") from None
        except MemoryError:
            raise OutOfMemoryError(memory.layout.slot_bytes, "recurrent state") from None
        return Slot(pos, page_id, page, is_kept=False)

    def commit(self) -> None:
        """Keep the new states, and of the old ones those that are snapshots."""
        memory = self._memory
        memory.pages.commit()
        memory._tx = None
        changed: dict[int, SeqStates | None] = {}
        for s, n_tokens in self._n_tokens.items():
            *older, tail = memory.seqs[s].slots
            many = n_tokens > 1
            old = self._before.get(s)
            kept = [
                slot._replace(is_kept=True)
                for slot in older
                if slot.is_kept or (many and old is not None and slot.page_id == old.tail.page_id)
            ]
            states = replace(memory.seqs[s], slots=(*kept, tail._replace(is_kept=many)))
            changed[s] = states.thinned(memory.params.n_snapshots)
        memory._update(changed)

    def rollback(self) -> None:
        """Bring back exactly the state that `begin` saw."""
        memory = self._memory
        memory.seqs = self._before
        memory.pages.rollback()
        memory._tx = None


class RecurrentStagedLoad(StagedLoad):
    """Loaded states that wait in the memory's slots."""

    def __init__(self, memory: RecurrentMemory) -> None:
        self._memory = memory
        self.loaded: Mapping[int, SeqStates] = {}
        self.kept: Mapping[int, SeqStates] = {}

    def ends(self) -> dict[int, int]:
        """The newest position of each sequence that was read."""
        return {s: states.tail.pos for s, states in self.loaded.items()}

    def swap_in(self) -> None:
        """Replace the sequence, or all."""
        self._memory.pages.commit()
        self._memory._tx = None
        self._memory._replace({**self.kept, **self.loaded})

    def discard(self) -> None:
        """Let go of it."""
        self._memory.pages.rollback()
        self._memory._tx = None
