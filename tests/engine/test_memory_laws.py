"""What must hold for every memory, cache type and scaling of positions, whatever is done to it."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import engine
from engine.errors import ContextFullError, StateFileError
from engine.types import F32Array
from tests.engine.crafted import CRAFTED_PHI3
from tests.engine.memory_kinds import LOSSY
from tests.engine.oracle_cases import context, nmse

Batch = engine.Batch
EXACT = 1e-10
TOKENS = [int(t) for t in np.random.default_rng(9).integers(1, 256, 160)]


@dataclass(frozen=True, slots=True)
class Subject:
    """A memory under test.

    Attributes:
        what: is special about it; case: its model.
        cache_type: of K and V.
        has_states: it cannot forget a part.
    """

    what: str
    case: str
    cache_type: str = "f32"
    has_states: bool = False

    @property
    def tolerance(self) -> float:
        """NMSE between what is computed in two ways that may round differently."""
        return LOSSY.get(self.cache_type, EXACT)

    def new(self, **more: object) -> engine.Context:
        """A context."""
        return context(self.case, type_k=self.cache_type, type_v=self.cache_type, **more)


SUBJECTS = (
    Subject("plain", "llama"),
    Subject("llama3", "llama-rope_llama3"),
    Subject("linear", "llama-rope_linear"),
    Subject("yarn", "llama-rope_yarn"),
    Subject("partial rotary with factors", CRAFTED_PHI3),
    Subject("latent attention", "deepseek2-yarn"),
    Subject("both bases of windows", "gemma3"),
    Subject("selective states", "mamba", has_states=True),
    Subject("token shift", "rwkv6", has_states=True),
    Subject("both in a layer", "falcon-h1", has_states=True),
    Subject("delta net", "qwen35", has_states=True),
    Subject("f16 latent attention", "deepseek2-yarn", "f16"),
    *(
        Subject(f"{cache_type} delta net", "qwen35", cache_type, has_states=True)
        for cache_type in ("f16", "q8_0", "q4_0")
    ),
    *(Subject(f"{cache_type} windows", "gemma3", cache_type) for cache_type in LOSSY),
    *(Subject(f"{cache_type} unified", CRAFTED_PHI3, cache_type) for cache_type in LOSSY),
)

Law = Callable[..., None]


def law(test: Law) -> Law:
    """A test of every subject with a few examples each."""
    bounded = settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    return pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.what)(bounded(test))


@functools.cache
def _reused(subject: Subject) -> engine.Context:
    return subject.new()


def empty(subject: Subject) -> engine.Context:
    """The subject's context, its plans in use since the first test, with nothing in its memory."""
    ctx = _reused(subject)
    ctx.get_kv_self().clear()
    return ctx


def feed(ctx: engine.Context, tokens: list[int], seq_id: int = 0, pos: int | None = None) -> F32Array:
    """Logits of the last token."""
    ctx.decode(Batch.from_tokens(tokens, pos, seq_id))
    return ctx.get_logits_ith(-1).copy()


N_PAST = st.integers(20, 90)
NEXT = TOKENS[100:103]


@law
@given(n=N_PAST, p0=st.integers(0, 60), delta=st.integers(1, 60), fold=st.booleans())
def test_a_shift_there_and_back_is_none(subject: Subject, n: int, p0: int, delta: int, fold: bool) -> None:
    ctx = empty(subject)
    feed(ctx, TOKENS[:n])
    kv = ctx.get_kv_self()
    kv.seq_cp(0, 1, 0, -1)
    p0 = 0 if subject.has_states else min(p0, n - 1)
    kv.seq_add(1, p0, -1, delta)
    if fold:
        kv.update()
    kv.seq_add(1, p0 + delta, -1, -delta)
    want = feed(ctx, NEXT)
    got = feed(ctx, NEXT, 1)
    assert nmse(got, want) <= subject.tolerance if fold else np.array_equal(got, want)


@law
@given(n=N_PAST, p0=st.integers(0, 60), width=st.integers(1, 60), start=st.integers(1, 90), fold=st.booleans())
def test_k_made_elsewhere_and_shifted_is_k_made_here(
    subject: Subject, n: int, p0: int, width: int, start: int, fold: bool
) -> None:
    """A range whose K was encoded at other positions takes the place of the same tokens' own."""
    ctx = empty(subject)
    kv = ctx.get_kv_self()
    feed(ctx, TOKENS[:n])
    feed(ctx, TOKENS[:n], 1, start)
    kv.seq_add(1, 0, -1, -start)
    kv.seq_cp(0, 2, 0, -1)
    want = feed(ctx, NEXT, 2)
    first, last = (0, -1) if subject.has_states else (p0, p0 + width)
    kv.seq_cp(1, 0, first, last)
    if fold:
        kv.update()
    assert nmse(feed(ctx, NEXT), want) <= subject.tolerance


@law
@given(ends=st.sets(st.integers(1, 89), min_size=1, max_size=4), cut=st.integers(0, 9), after=st.integers(1, 9))
def test_a_fork_that_steps_back_is_a_fresh_run(subject: Subject, ends: set[int], cut: int, after: int) -> None:
    """Behind the end of one of the pieces that a prompt came in, where states have a snapshot."""
    ctx = empty(subject)
    for begin, end in zip((0, *sorted(ends)), (*sorted(ends), 90), strict=True):
        feed(ctx, TOKENS[begin:end])
    at = sorted(ends)[cut % len(ends)]
    kv = ctx.get_kv_self()
    kv.seq_cp(0, 3, -1, -1)
    at = kv.seq_pos_reentry(3, at)
    assert kv.seq_rm(3, at, -1) and kv.seq_pos_max(3) == at - 1
    got = feed(ctx, TOKENS[100 : 100 + after], 3)
    original = feed(ctx, NEXT)
    kv.clear()
    assert nmse(got, feed(ctx, TOKENS[:at] + TOKENS[100 : 100 + after])) <= subject.tolerance
    assert nmse(original, feed(ctx, TOKENS[:90] + NEXT, 1)) <= subject.tolerance


@law
@given(n_ubatch=st.integers(1, 40), ends=st.sets(st.integers(1, 79), max_size=5))
def test_a_prompt_in_pieces_is_the_whole_prompt(subject: Subject, n_ubatch: int, ends: set[int]) -> None:
    want = feed(empty(subject), TOKENS[:80])
    ctx = subject.new(n_ubatch=n_ubatch)
    for begin, end in zip((0, *sorted(ends)), (*sorted(ends), 80), strict=True):
        got = feed(ctx, TOKENS[begin:end])
    assert nmse(got, want) <= subject.tolerance


@law
@given(lengths=st.lists(st.integers(1, 50), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_sequences_in_one_batch_are_each_alone(subject: Subject, lengths: list[int], seed: int) -> None:
    """In any order, tokens of different sequences mixed."""
    order = [i for i, n in enumerate(lengths) for _ in range(n)]
    random.Random(seed).shuffle(order)
    ctx = empty(subject)
    n_done = [0] * len(lengths)
    singles = []
    for i in order:
        singles.append(Batch.from_tokens([TOKENS[10 * i + n_done[i]]], n_done[i], i))
        n_done[i] += 1
    ctx.decode(Batch.join(singles))
    got = [ctx.get_logits_ith(max(at for at, j in enumerate(order) if j == i)).copy() for i in range(len(lengths))]
    for i, n in enumerate(lengths):
        assert nmse(got[i], feed(empty(subject), TOKENS[10 * i : 10 * i + n])) <= subject.tolerance


@law
@given(n=N_PAST, at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_of_saved_state_is_refused(subject: Subject, n: int, at: float, bit: int) -> None:
    ctx = empty(subject)
    feed(ctx, TOKENS[:n])
    data = bytearray(ctx.state_seq_get_data(0))
    data[int(at * len(data))] ^= 1 << bit
    before = ctx.get_kv_self().state_hash()
    for seq_id in (0, 1):
        with pytest.raises(StateFileError):
            ctx.state_seq_set_data(seq_id, bytes(data))
        assert ctx.get_kv_self().state_hash() == before


@law
@given(n=N_PAST, step=st.integers(1, 9), n_threads=st.integers(1, 3))
def test_restored_elsewhere_goes_on_with_the_same_bits(subject: Subject, n: int, step: int, n_threads: int) -> None:
    """In another sequence of another n_ctx and number of threads, among the leftovers of others."""
    ctx = empty(subject)
    feed(ctx, TOKENS[:n])
    data = ctx.state_seq_get_data(0)
    other = subject.new(n_ctx=128, n_threads=n_threads, n_threads_batch=n_threads)
    for begin in range(0, 40, step):
        for seq_id in (0, 1, 2):
            feed(other, TOKENS[begin : begin + step], seq_id)
    other.get_kv_self().seq_rm(1, 0, -1)
    other.get_kv_self().seq_rm(0, 7, 19)
    other.state_seq_set_data(3, data)
    assert np.array_equal(feed(other, NEXT, 3), feed(ctx, NEXT))


@law
@given(n=N_PAST, seed=st.integers(0, 99))
def test_a_clone_notices_nothing(subject: Subject, n: int, seed: int) -> None:
    ctx = empty(subject)
    feed(ctx, TOKENS[:n])
    kv, rng = ctx.get_kv_self(), random.Random(seed)
    twin = kv.clone()
    before = twin.state_hash()
    for _ in range(6):
        match rng.randrange(5):
            case 0:
                feed(ctx, TOKENS[: rng.randrange(1, 9)])
            case 1:
                kv.seq_rm(0, rng.randrange(n), -1)
            case 2:
                kv.seq_add(0, 0, -1, rng.randrange(9))
            case 3:
                kv.seq_cp(0, 1, 0, -1)
            case 4:
                kv.defrag()
                kv.update()
        assert twin.state_hash() == before
    ctx.set_kv_self(twin)
    got = feed(ctx, NEXT)
    kv.close()
    twin.clear()
    assert nmse(got, feed(ctx, TOKENS[:n] + NEXT)) <= subject.tolerance


@law
@given(n=N_PAST, n_threads=st.integers(1, 3))
def test_threads_and_plans_change_no_bit(subject: Subject, n: int, n_threads: int) -> None:
    """A plan in use and a fresh one; one thread and several."""
    rows = []
    for ctx in (empty(subject), subject.new(n_threads=n_threads, n_threads_batch=n_threads)):
        rows.append([feed(ctx, TOKENS[:n]), feed(ctx, NEXT[:1]), feed(ctx, NEXT[1:])])
    assert all(np.array_equal(a, b) for a, b in zip(*rows, strict=True))


@pytest.mark.parametrize("subject", SUBJECTS[:-7], ids=lambda subject: subject.what)
def test_an_abort_behind_any_stage_leaves_no_trace(subject: Subject) -> None:
    """Behind every stage of every micro batch, with two sequences in the batch."""
    ctx = subject.new(n_ubatch=3)
    feed(ctx, TOKENS[:20])
    feed(ctx, TOKENS[:9], 1)
    batch = Batch.join([Batch.from_tokens(TOKENS[20:24], 20), Batch.from_tokens(TOKENS[9:11], 9, 1)])
    kv = ctx.get_kv_self()
    before, positions = kv.state_hash(), (kv.seq_pos_min(0), kv.seq_pos_max(0), kv.seq_pos_min(1), kv.seq_pos_max(1))
    ctx._binding.poll_period_ns = 0
    n_left = n_stages = 0

    def is_enough() -> bool:
        nonlocal n_left
        n_left -= 1
        return n_left < 0

    ctx.set_abort_callback(is_enough)
    status = engine.DecodeStatus.ABORTED
    while status is engine.DecodeStatus.ABORTED:
        n_left = n_stages
        status = ctx.decode(batch)
        if status is engine.DecodeStatus.ABORTED:
            n_stages += 1
            assert kv.state_hash() == before
            assert (kv.seq_pos_min(0), kv.seq_pos_max(0), kv.seq_pos_min(1), kv.seq_pos_max(1)) == positions
    assert n_stages > 20 and kv.state_hash() != before
    got = ctx.get_logits().copy()
    fresh = subject.new(n_ubatch=3)
    feed(fresh, TOKENS[:20])
    feed(fresh, TOKENS[:9], 1)
    fresh.decode(batch)
    assert np.array_equal(got, fresh.get_logits())


@pytest.mark.parametrize("case", ["gemma3", "mamba", "falcon-h1"])
def test_under_a_bound_a_decode_that_fails_leaves_no_trace(case: str) -> None:
    """What may be given up for room is given up by `kv_self_update`, behind which hashes are taken."""
    tokens = [int(t) for t in np.random.default_rng(9).integers(1, 256, 384)]
    sizes = {"n_ctx": 1024, "n_batch": 64, "n_ubatch": 64}
    probe = context(case, **sizes)
    for begin in range(0, 320, 32):
        feed(probe, tokens[begin : begin + 32])
    used_bytes = probe.get_kv_self().stats().used_bytes
    n_gave_up = 0
    for share in (1.0, 0.95, 0.9, 0.8, 0.7):
        ctx = context(case, kv_bytes_max=int(used_bytes * share), **sizes)
        kv = ctx.get_kv_self()
        with contextlib.suppress(ContextFullError):
            for begin in range(0, 320, 32):
                feed(ctx, tokens[begin : begin + 32])
        full = kv.state_hash()
        ctx.kv_self_update()
        before = kv.state_hash()
        n_gave_up += before != full
        for is_stopped in (1, 0):
            ctx.abort_flag[0] = is_stopped
            try:
                status = ctx.decode(Batch.from_tokens(tokens[320:384], None))
            except ContextFullError:
                status = engine.DecodeStatus.ABORTED
            if status is engine.DecodeStatus.OK:
                continue
            ctx.kv_self_update()
            assert kv.state_hash() == before
    assert n_gave_up
