"""Recurrent states, alone and beside a cache: each state must be the one behind exactly the tokens of its sequence."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.batch import UBatch
from engine.errors import BatchError, ContextFullError, ParamError, StateFileError, UnsupportedCallError
from engine.io import BlockReader, BlockWriter
from engine.memory import (
    HybridMemory,
    LayerState,
    MemoryParams,
    MemorySpec,
    RecurrentMemory,
    SwaKind,
    create_cache,
    create_memory,
)
from engine.types import QuantType
from tests.engine.memory.helpers import LAYERS, N_SWA, NO_OUTPUT, ROPE, ubatch, ubatch_of, write

STATES = (LayerState(4, 6, 10), LayerState(6, 3, 0))
SLOT_BYTES = 4 * 19
SETTINGS: dict[str, Any] = {"n_ctx": 4096, "n_seq_max": 4, "swa_margin": 0}


def make(kind: str, **params: Any) -> RecurrentMemory | HybridMemory:
    """A small memory: "recurrent", "hybrid", or "hybrid-iswa"."""
    window = kind == "hybrid-iswa"
    spec = MemorySpec(
        kind="recurrent" if kind == "recurrent" else "hybrid",
        layers=() if kind == "recurrent" else LAYERS,
        fingerprint="test",
        rope=ROPE,
        swa_layers=frozenset({2, 3} if window else ()),
        n_swa=N_SWA if window else 0,
        swa_kind=SwaKind.STANDARD if window else SwaKind.NONE,
        states=STATES,
    )
    memory = create_memory(spec, MemoryParams(**{**SETTINGS, **params}))
    assert isinstance(memory, (RecurrentMemory, HybridMemory))
    return memory


def states_of(memory: RecurrentMemory | HybridMemory) -> RecurrentMemory:
    """The recurrent part."""
    return memory.states if isinstance(memory, HybridMemory) else memory


def slot(memory: RecurrentMemory | HybridMemory, address: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The bytes of a slot."""
    pages = states_of(memory).pages
    views = [pages.pool.view(page_id) for page_id in pages.used()]
    return next(view for view in views if view.ctypes.data == address)


def state_after(tokens: Sequence[int], state: bytes = bytes(SLOT_BYTES)) -> bytes:
    """What a model would make of a state: a digest chain."""
    for token in tokens:
        state = hashlib.shake_128(state + token.to_bytes(4, "little")).digest(SLOT_BYTES)
    return state


def decode(memory: RecurrentMemory | HybridMemory, parts: Sequence[tuple[UBatch, Sequence[int]]]) -> None:
    """Place all micro batches, then compute them one by one."""
    memory.prepare(sum(part.n_tokens for part, _ in parts))
    tx = memory.begin()
    try:
        placed = [(tx.place(part), tokens) for part, tokens in parts]
        for where, tokens in placed:
            states = where.states
            assert states is not None
            read = [slot(memory, int(a)).tobytes() if a else bytes(SLOT_BYTES) for a in states.source]
            assert len(set(states.target.tolist())) == len(states.target)
            for before, target, (_, t0, n) in zip(read, states.target, states.segments, strict=True):
                slot(memory, int(target))[:] = np.frombuffer(state_after(tokens[t0 : t0 + n], before), np.uint8)
            if isinstance(memory, HybridMemory):
                for store, kv in zip(memory.cache.stores, where.kv, strict=True):
                    write(store.layout, kv.pages, kv.cells, tokens, where.rope_pos)
    except BaseException:
        tx.rollback()
        raise
    tx.commit()


def saved(memory: RecurrentMemory | HybridMemory, seq_id: int | None) -> bytes:
    """The blocks of a sequence, or all."""
    sink = io.BytesIO()
    writer = BlockWriter(sink)
    memory.save(writer, seq_id)
    writer.close()
    return sink.getvalue()


class StateMachine(RuleBasedStateMachine):
    """Tokens per sequence are the model; every snapshot must be the state behind a prefix of them."""

    kind = "recurrent"

    @initialize(n_slots=st.sampled_from([0, 6, 20]), n_snapshots=st.sampled_from([0, 2, 8]))
    def start(self, n_slots: int, n_snapshots: int) -> None:
        stride = states_of(make(self.kind)).pages.pool.stride_bytes
        budget = n_slots * stride if self.kind == "recurrent" else 0
        self.memory = make(self.kind, kv_bytes_max=budget, n_snapshots=n_snapshots)
        self.tokens: dict[int, tuple[int, list[int]]] = {}
        self.n = 0

    def _new(self, n: int) -> list[int]:
        self.n += n
        return list(range(self.n - n, self.n))

    def _end(self, seq_id: int) -> int:
        pos0, tokens = self.tokens.get(seq_id, (0, []))
        return pos0 + len(tokens)

    @rule(seq_id=st.integers(0, 3), n=st.integers(1, 9), cut=st.integers(1, 9))
    def decode(self, seq_id: int, n: int, cut: int) -> None:
        begin, tokens = self._end(seq_id), self._new(n)
        pieces = [range(i, min(i + cut, n)) for i in range(0, n, cut)]
        before = self.memory.state_hash()
        try:
            decode(
                self.memory,
                [(ubatch([begin + i for i in p], (seq_id,)), [tokens[i] for i in p]) for p in pieces],
            )
        except ContextFullError:
            return
        self.tokens[seq_id] = (self.tokens.get(seq_id, (0, []))[0], self.tokens.get(seq_id, (0, []))[1] + tokens)
        assert self.memory.state_hash() != before

    @rule(n=st.integers(1, 5))
    def decode_fork_in_one_batch(self, n: int) -> None:
        """Tokens that 0 and 1 share, then each its own, in one transaction."""
        shared, a, b = self._new(n), self._new(2), self._new(1)
        try:
            assert self.memory.seq_rm(0, -1, -1) and self.memory.seq_rm(1, -1, -1)
            self.tokens.pop(0, None), self.tokens.pop(1, None)
            decode(
                self.memory,
                [
                    (ubatch(range(n), (0, 1)), shared),
                    (ubatch_of([([n, n + 1], (0,)), ([n], (1,))]), a + b),
                ],
            )
        except ContextFullError:
            return
        self.tokens[0], self.tokens[1] = (0, shared + a), (0, shared + b)

    @rule(seq_id=st.integers(0, 3), n=st.integers(1, 5))
    def roll_back(self, seq_id: int, n: int) -> None:
        before, used = self.memory.state_hash(), states_of(self.memory).pages.used()
        begin = self._end(seq_id)
        tx = self.memory.begin()
        try:
            tx.place(ubatch(range(begin, begin + n), (seq_id,)))
            tx.place(ubatch(range(begin + n, begin + n + 1), (seq_id,)))
        except ContextFullError:
            pass
        tx.rollback()
        assert self.memory.state_hash() == before and states_of(self.memory).pages.used() == used

    @rule(seq_id=st.integers(-1, 3), p0=st.integers(-1, 40), p1=st.integers(-1, 40))
    def seq_rm(self, seq_id: int, p0: int, p1: int) -> None:
        before = self.memory.state_hash()
        if not self.memory.seq_rm(seq_id, p0, p1):
            assert self.memory.state_hash() == before
            return
        for s in list(self.tokens) if seq_id < 0 else [seq_id]:
            pos0, tokens = self.tokens.get(s, (0, []))
            lo, hi = max(p0, 0), 2**31 if p1 < 0 else p1
            if lo >= hi or lo >= pos0 + len(tokens) or hi <= pos0:
                continue
            assert hi >= pos0 + len(tokens)
            if lo <= pos0:
                self.tokens.pop(s, None)
            else:
                self.tokens[s] = (pos0, tokens[: lo - pos0])

    @rule(seq_id=st.integers(0, 3), n=st.integers(0, 30))
    def step_back(self, seq_id: int, n: int) -> None:
        pos0, tokens = self.tokens.get(seq_id, (0, []))
        at = self.memory.seq_pos_reentry(seq_id, max(pos0 + len(tokens) - n, 0))
        assert at <= max(pos0 + len(tokens) - n, 0)
        if at:
            assert self.memory.seq_rm(seq_id, at, -1)
            self.tokens[seq_id] = (pos0, tokens[: at - pos0])

    @rule(src=st.integers(0, 3), dst=st.integers(0, 3))
    def seq_cp(self, src: int, dst: int) -> None:
        self.memory.seq_cp(src, dst, -1, -1)
        if src in self.tokens:
            self.tokens[dst] = self.tokens[src]

    @rule(seq_id=st.integers(0, 3))
    def seq_keep(self, seq_id: int) -> None:
        self.memory.seq_keep(seq_id)
        self.tokens = {s: t for s, t in self.tokens.items() if s == seq_id}

    @rule(seq_id=st.integers(0, 3), delta=st.integers(0, 20))
    def seq_add(self, seq_id: int, delta: int) -> None:
        self.memory.seq_add(seq_id, 0, -1, delta)
        if seq_id in self.tokens:
            pos0, tokens = self.tokens[seq_id]
            self.tokens[seq_id] = (pos0 + delta, tokens)

    @rule(src=st.integers(0, 3), dst=st.integers(0, 3))
    def save_and_load(self, src: int, dst: int) -> None:
        data = saved(self.memory, src)
        before = self.memory.state_hash()
        try:
            self.memory.load(BlockReader(io.BytesIO(data), len(data)), dst).discard()
            assert self.memory.state_hash() == before
            self.memory.load(BlockReader(io.BytesIO(data), len(data)), dst).swap_in()
        except ContextFullError:
            assert self.memory.state_hash() == before
            return
        self.tokens.pop(dst, None) if src not in self.tokens else self.tokens.update({dst: self.tokens[src]})

    @rule()
    def change_to_a_clone(self) -> None:
        twin = self.memory.clone()
        assert twin.state_hash() == self.memory.state_hash()
        decode(self.memory, [(ubatch([self._end(0)], (0,)), [1])]) if states_of(twin).pages.pool.n_free > 3 else None
        self.memory.close()
        self.memory = twin

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "memory"):
            return
        assert self.memory.seq_ids() == tuple(sorted(self.tokens))
        states = states_of(self.memory)
        slots = set()
        for s, (pos0, tokens) in self.tokens.items():
            assert self.memory.seq_pos_max(s) == pos0 + len(tokens) - 1
            assert len(states.seqs[s].slots) <= states.params.n_snapshots + 1
            for kept in states.seqs[s].slots:
                slots.add(kept.page_id)
                assert slot(self.memory, kept.page).tobytes() == state_after(tokens[: kept.pos - pos0 + 1])
        assert set(states.pages.used()) == slots

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()
            assert states_of(self.memory).pages.pool.n_used == 0


class HybridStateMachine(StateMachine):
    kind = "hybrid"


class HybridWindowMachine(StateMachine):
    kind = "hybrid-iswa"


@pytest.mark.parametrize("machine", [StateMachine, HybridStateMachine, HybridWindowMachine])
def test_random_operations(machine: type[StateMachine]) -> None:
    case = machine.TestCase
    case.settings = settings(
        max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    case().runTest()


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_a_part_cannot_be_removed(kind: str) -> None:
    """Refused, and nothing changed; the whole never fails. llama.cpp #28425, #28007, #27931."""
    memory = make(kind)
    decode(memory, [(ubatch(range(20)), range(20))])
    before = memory.state_hash()
    for p0, p1 in ((0, 5), (4, 12), (10, -1), (19, -1)):
        assert not memory.seq_rm(0, p0, p1) and not memory.seq_rm(-1, p0, p1)
    assert memory.state_hash() == before and not memory.caps.remove_middle
    assert memory.seq_rm(0, 20, -1) and memory.seq_rm(1, 0, -1) and memory.state_hash() == before
    assert memory.seq_rm(0, 0, 20) and memory.seq_ids() == ()


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_snapshots_of_turns_survive_generation_and_saving(kind: str) -> None:
    """llama.cpp #25913, #27813, #22384: a chat steps back to before and behind each prompt."""
    memory = make(kind)
    pos = 0
    for _ in range(3):
        decode(memory, [(ubatch(range(pos, pos + 10)), range(pos, pos + 10))])
        pos += 10
        for _ in range(5):
            decode(memory, [(ubatch([pos]), [pos])])
            pos += 1
    data = saved(memory, 0)
    other = make(kind)
    other.load(BlockReader(io.BytesIO(data), len(data)), 2).swap_in()
    assert other.seq_pos_reentry(2, 44) == 40 and other.seq_pos_reentry(2, 39) == 30
    assert other.seq_rm(2, 30, -1)
    assert slot(other, states_of(other).seqs[2].tail.page).tobytes() == state_after(range(30))
    assert (other.seq_pos_min(2), other.seq_pos_max(2)) == (29, 29)


def test_loading_leaves_out_the_snapshots_that_do_not_fit() -> None:
    """The state where the sequence stands is what counts: without room for that, nothing changes."""
    memory = make("recurrent")
    for pos in range(0, 60, 10):
        decode(memory, [(ubatch(range(pos, pos + 10)), range(pos, pos + 10))])
    data = saved(memory, 0)
    stride_bytes = states_of(memory).pages.pool.stride_bytes
    small = make("recurrent", kv_bytes_max=3 * stride_bytes)
    small.load(BlockReader(io.BytesIO(data), len(data)), 1).swap_in()
    assert [s.pos for s in states_of(small).seqs[1].slots] == [39, 49, 59]
    assert slot(small, states_of(small).seqs[1].tail.page).tobytes() == state_after(range(60))
    before = small.state_hash()
    with pytest.raises(ContextFullError):
        small.load(BlockReader(io.BytesIO(data), len(data)), 2)
    assert small.state_hash() == before


def test_what_states_refuse() -> None:
    memory = make("recurrent", n_ctx=50)
    decode(memory, [(ubatch(range(5)), range(5)), (ubatch(range(4), (1,)), range(4))])
    before = memory.state_hash()
    mixed = UBatch(2, None, None, np.array([5, 6], np.int32), ((0, 0, 2),), ((0,), (0, 2)), NO_OUTPUT, NO_OUTPUT)
    for part, error in (
        (ubatch([3]), BatchError),
        (ubatch([5], (0, 1)), BatchError),
        (ubatch([0], (7,)), BatchError),
        (mixed, BatchError),
        (ubatch([50]), ContextFullError),
    ):
        tx = memory.begin()
        with pytest.raises(error):
            tx.place(part)
        tx.rollback()
    with pytest.raises(ParamError):
        memory.seq_div(0, 0, -1, 0)
    with pytest.raises(ParamError):
        memory.seq_add(0, 0, -1, 2**31)
    with pytest.raises(UnsupportedCallError):
        memory.kv_offsets(0)
    with pytest.raises(ParamError):
        create_cache(MemorySpec("hybrid", LAYERS, "x"), MemoryParams(n_ctx=5))
    hybrid = make("hybrid")
    decode(hybrid, [(ubatch(range(5)), range(5))])
    with pytest.raises(ParamError, match="not all"):
        hybrid.seq_cp(0, 1, 0, 3)
    assert memory.state_hash() == before


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_every_flipped_byte_is_seen(kind: str) -> None:
    memory = make(kind)
    decode(memory, [(ubatch(range(3)), range(3))])
    data = saved(memory, 0)
    before, used = memory.state_hash(), states_of(memory).pages.used()
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x41
        with pytest.raises(StateFileError):
            reader = BlockReader(io.BytesIO(bytes(bad)), len(bad))
            staged = memory.load(reader, 1)
            try:
                reader.close()
            finally:
                staged.discard()
    assert memory.state_hash() == before and states_of(memory).pages.used() == used


def test_latent_cache_has_no_v() -> None:
    layers = tuple(replace(layer, n_head_kv=1, d_k=8, d_v=0, d_latent=6) for layer in LAYERS)
    cache = create_cache(MemorySpec("mla", layers, "test", ROPE), MemoryParams(n_ctx=100))
    assert cache.stores[0].layout.cell_bytes == 4 * 8 * 2 and "mla" in cache.fingerprint
    assert type(cache.clone()) is type(cache)
    first, last = cache.kv_offsets(0), cache.kv_offsets(3)
    assert first == (0, 2 * 2) and last == (
        3 * 64 * 8 * 2,
        3 * 64 * 8 * 2 + 2 * 2,
    )  # behind the two rotated values, f16
    assert cache.kv_types(0) == (QuantType.F16, QuantType.F16)
    with pytest.raises(ParamError):
        create_cache(MemorySpec("mla", LAYERS, "test", ROPE), MemoryParams(n_ctx=100))
