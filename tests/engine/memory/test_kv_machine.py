"""Random operations on caches against plain lists: positions, K, V, isolation, rollback, saving, compacting."""

from __future__ import annotations

import io

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.errors import ContextFullError, ParamError
from engine.io import BlockReader, BlockWriter
from engine.memory import KVCache
from tests.engine.memory.helpers import decode, make_cache, ubatch
from tests.engine.memory.model import Model, check

SEQS = st.integers(0, 3)
POS = st.integers(-1, 300)


class CacheMachine(RuleBasedStateMachine):
    """One cache, now and then a clone that must not notice what happens afterwards."""

    kind = "kv"

    @initialize(n_pages=st.sampled_from([0, 0, 12, 30]), swa_margin=st.sampled_from([0, 30, None]))
    def start(self, n_pages: int, swa_margin: int | None) -> None:
        probe = make_cache(self.kind)
        page_bytes = sum(store.pages.pool.stride_bytes for store in probe.stores)
        self.cache: KVCache = make_cache(self.kind, kv_bytes_max=n_pages * page_bytes, swa_margin=swa_margin)
        self.model = Model()
        self.twins: list[tuple[KVCache, Model, bytes]] = []
        self.n_contents = 0

    def _contents(self, n: int) -> list[int]:
        self.n_contents += n
        return list(range(self.n_contents - n, self.n_contents))

    @rule(seq_id=SEQS, n=st.one_of(st.integers(1, 3), st.integers(1, 150)), n_ubatch=st.sampled_from([1000, 33]))
    def decode(self, seq_id: int, n: int, n_ubatch: int) -> None:
        begin = self.model.pos_max(seq_id) + 1
        pos, contents = list(range(begin, begin + n)), self._contents(n)
        before = self.cache.state_hash()
        try:
            decode(self.cache, [(pos, (seq_id,), contents)], n_ubatch)
        except ContextFullError:
            if self.kind == "kv":
                assert self.cache.state_hash() == before
            return
        self.model.add_tokens((seq_id,), pos, contents)

    @rule(n=st.integers(1, 20), others=st.sets(SEQS, min_size=2))
    def decode_shared(self, n: int, others: set[int]) -> None:
        ids = tuple(sorted(others))
        begin = max(self.model.pos_max(s) for s in ids) + 1
        pos, contents = list(range(begin, begin + n)), self._contents(n)
        try:
            decode(self.cache, [(pos, ids, contents)])
        except ContextFullError:
            return
        self.model.add_tokens(ids, pos, contents)

    @rule(seq_id=SEQS, n=st.integers(1, 100))
    def roll_back(self, seq_id: int, n: int) -> None:
        before, used = self.cache.state_hash(), [store.pages.used() for store in self.cache.stores]
        begin = self.model.pos_max(seq_id) + 1
        tx = self.cache.begin()
        try:
            tx.place(ubatch(range(begin, begin + n), (seq_id, (seq_id + 1) % 4)))
            tx.place(ubatch(range(begin + n, begin + 2 * n), (seq_id,)))
        except ContextFullError:
            pass
        tx.rollback()
        assert self.cache.state_hash() == before
        assert [store.pages.used() for store in self.cache.stores] == used

    @rule(seq_id=st.integers(-1, 3), p0=POS, p1=POS)
    def seq_rm(self, seq_id: int, p0: int, p1: int) -> None:
        before = self.cache.state_hash()
        if self.cache.seq_rm(seq_id, p0, p1):
            self.model.rm(seq_id, p0, p1)
        else:
            assert self.kind != "kv" and self.cache.state_hash() == before

    @rule(seq_id=SEQS, n=st.integers(1, 40))
    def step_back(self, seq_id: int, n: int) -> None:
        begin = max(self.model.pos_max(seq_id) + 1 - n, 0)
        reentry = self.cache.seq_pos_reentry(seq_id, begin)
        done = self.cache.seq_rm(seq_id, begin, -1)
        assert reentry == (begin if done else 0)
        if done:
            self.model.rm(seq_id, begin, -1)

    @rule(src=SEQS, dst=SEQS, p0=POS, p1=POS)
    def seq_cp(self, src: int, dst: int, p0: int, p1: int) -> None:
        try:
            self.cache.seq_cp(src, dst, p0, p1)
        except ParamError:
            assert self.kind != "kv"
            return
        self.model.cp(src, dst, p0, p1)
        again = self.cache.state_hash()
        self.cache.seq_cp(src, dst, p0, p1)
        assert self.cache.state_hash() == again

    @rule(seq_id=SEQS)
    def seq_keep(self, seq_id: int) -> None:
        self.cache.seq_keep(seq_id)
        self.model.keep(seq_id)

    @rule(seq_id=SEQS, p0=POS, p1=POS, delta=st.integers(-80, 80))
    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        before = self.cache.state_hash()
        try:
            self.cache.seq_add(seq_id, p0, p1, delta)
        except ParamError:
            assert self.kind != "kv" and self.cache.state_hash() == before
            return
        self.model.add(seq_id, p0, p1, delta)

    @rule(seq_id=SEQS, n_keep=st.integers(0, 8))
    def shift_context(self, seq_id: int, n_keep: int) -> None:
        n_past = self.model.pos_max(seq_id) + 1
        discard = (n_past - n_keep) // 2
        if discard <= 0 or not self.cache.seq_rm(seq_id, n_keep, n_keep + discard):
            return
        self.model.rm(seq_id, n_keep, n_keep + discard)
        self.cache.seq_add(seq_id, n_keep + discard, n_past, -discard)
        self.model.add(seq_id, n_keep + discard, n_past, -discard)

    @rule(seq_id=SEQS, p0=POS, p1=POS, divisor=st.integers(1, 5))
    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        before = self.cache.state_hash()
        try:
            self.cache.seq_div(seq_id, p0, p1, divisor)
        except (ContextFullError, ParamError):
            assert self.cache.state_hash() == before
            return
        self.model.div(seq_id, p0, p1, divisor)

    @rule()
    def update(self) -> None:
        before = self.cache.state_hash()
        try:
            self.cache.update()
        except ContextFullError:
            assert self.cache.state_hash() == before
            return
        assert not any(len(t.deltas()) for s in self.cache.seq_ids() for t in self.cache.tables(s))

    @rule()
    def defrag(self) -> None:
        before = self.cache.state_hash()
        n_pages = self.cache.stats().n_pages
        self.cache.defrag()
        self.cache.prepare(0)
        assert self.cache.state_hash() == before
        if not self.twins:
            assert self.cache.stats().n_pages <= n_pages

    @precondition(lambda self: len(self.twins) < 3)
    @rule()
    def clone(self) -> None:
        twin = self.cache.clone()
        assert twin.state_hash() == self.cache.state_hash()
        self.twins.append((twin, self.model.copy(), twin.state_hash()))

    @precondition(lambda self: self.twins)
    @rule(keep=st.booleans())
    def change_sides(self, keep: bool) -> None:
        twin, model, digest = self.twins.pop(0)
        assert twin.state_hash() == digest
        if keep:
            self.twins.append((self.cache, self.model, self.cache.state_hash()))
        self.cache, self.model = twin, model

    @precondition(lambda self: self.twins)
    @rule()
    def drop_clone(self) -> None:
        self.twins.pop()[0].close()

    @rule(src=SEQS, dst=SEQS)
    def save_and_load(self, src: int, dst: int) -> None:
        sink = io.BytesIO()
        writer = BlockWriter(sink)
        self.cache.save(writer, src)
        writer.close()
        data = sink.getvalue()
        before = self.cache.state_hash()
        try:
            self.cache.load(BlockReader(io.BytesIO(data), len(data)), dst).discard()
            assert self.cache.state_hash() == before
            self.cache.load(BlockReader(io.BytesIO(data), len(data)), dst).swap_in()
        except ContextFullError:
            assert self.cache.state_hash() == before
            return
        if src != dst:
            self.model.rm(dst, 0, -1)
            self.model.cp(src, dst, 0, -1)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "cache"):
            check(self.cache, self.model)

    def teardown(self) -> None:
        if not hasattr(self, "cache"):
            return
        pools = [store.pages.pool for store in self.cache.stores]
        for twin, model, digest in self.twins:
            assert twin.state_hash() == digest
            check(twin, model)
            twin.close()
        self.cache.close()
        assert [pool.n_used for pool in pools] == [0] * len(pools)
        assert all(pool.budget.used_bytes == 0 for pool in pools)


class WindowMachine(CacheMachine):
    kind = "iswa"


class ChunkedMachine(CacheMachine):
    kind = "chunked"


@pytest.mark.parametrize("machine", [CacheMachine, WindowMachine, ChunkedMachine])
def test_random_operations(machine: type[CacheMachine]) -> None:
    case = machine.TestCase
    case.settings = settings(
        max_examples=15,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    case().runTest()
