"""Faults that other engines shipped, each tried here on a whole context or session.

Named after the issue where it was reported: llama.cpp's number, or ik_llama.cpp's where the name says so. What memories
do below is tried in `tests/engine/memory`.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.context.core import Context
from engine.errors import BatchError, ContextFullError, EngineError, KernelStatusError, ParamError, StateFileError
from engine.generate import Finished, GenerateParams, generate
from engine.sampling import SamplerParams
from engine.session import Session
from engine.turns import Turn
from engine.types import F32Array
from tests.engine.crafted import CRAFTED_PHI3
from tests.engine.memory_kinds import KINDS, LOSSY, MemoryKind
from tests.engine.oracle_cases import context, nmse

Batch = engine.Batch
EXACT = 1e-10
TOKENS = [int(t) for t in np.random.default_rng(1).integers(1, 256, 2000)]
NEXT = TOKENS[-4:]
GREEDY = GenerateParams(SamplerParams(temperature=0.0), 6, ignore_eog=True)


def feed(ctx: Context, tokens: list[int], seq_id: int = 0, pos: int | None = None) -> F32Array:
    """Logits of the last token; in batches that any context takes."""
    for i in range(0, len(tokens), 200):
        ctx.decode(Batch.from_tokens(tokens[i : i + 200], None if pos is None else pos + i, seq_id))
    return ctx.get_logits_ith(-1).copy()


def shift_context(ctx: Context, n_keep: int, n_discard: int) -> None:
    """Let tokens behind the first n_keep leave, and move up what follows."""
    kv = ctx.get_kv_self()
    assert kv.seq_rm(0, n_keep, n_keep + n_discard)
    kv.seq_add(0, n_keep + n_discard, -1, -n_discard)


def say(session: Session, turns: list[Turn]) -> Finished:
    """A greedy reply of six tokens."""
    *_, end = generate(session, turns, GREEDY)
    assert isinstance(end, Finished)
    return end


def turn(key: str, n: int) -> Turn:
    """A turn of n random tokens, the same for the same key."""
    return Turn(key, tuple(random.Random(key).choices(range(10, 200), k=n)))


by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


# -- shifts


@pytest.mark.parametrize("cache_type", ["q4_0", "q8_0"])
@pytest.mark.parametrize("name", [CRAFTED_PHI3, "gemma3"])
def test_5652_shift_of_quantised_keys(name: str, cache_type: str) -> None:
    rows = []
    for t in ("f32", cache_type):
        ctx = context(name, type_k=t, type_v="f32")
        feed(ctx, TOKENS[:90])
        shift_context(ctx, 4, 40)
        rows.append(feed(ctx, NEXT))
    assert nmse(rows[1], rows[0]) < LOSSY[cache_type]


def test_13865_shift_of_a_model_that_could_see_but_did_not() -> None:
    ctx, moved = context("qwen2vl"), context("qwen2vl")
    feed(ctx, TOKENS[:60])
    feed(moved, TOKENS[:60])
    moved.get_kv_self().seq_add(0, 0, -1, 31)
    assert nmse(feed(moved, NEXT), feed(ctx, NEXT)) < EXACT
    shift_context(ctx, 4, 20)
    assert np.isfinite(feed(ctx, NEXT)).all()


@pytest.mark.parametrize("name", ["qwen35", "qwen3next", "lfm2"])
def test_19915_moving_positions_of_a_hybrid_model(name: str) -> None:
    """Done, or refused where it is asked for; never at the next decode."""
    ctx = context(name)
    want = feed(ctx, TOKENS[:60] + NEXT)
    ctx.get_kv_self().clear()
    feed(ctx, TOKENS[:60])
    ctx.get_kv_self().seq_add(0, 0, -1, 9)
    assert nmse(feed(ctx, NEXT), want) < EXACT
    assert not ctx.get_kv_self().seq_rm(0, 20, 40)
    ctx.get_kv_self().seq_add(0, 40, -1, -3)
    assert np.isfinite(feed(ctx, NEXT)).all()


def test_4097_a_chat_that_shifts_again_and_again() -> None:
    """Half-precision keys are as good after forty shifts as after one: none was rotated and rounded again."""
    narrow, wide = (context("llama", type_k=t, type_v=t, n_ctx=64) for t in ("f16", "f32"))
    for ctx in (narrow, wide):
        feed(ctx, TOKENS[:60])
    for i in range(40):
        rows = []
        for ctx in (narrow, wide):
            shift_context(ctx, 8, 10)
            rows.append(feed(ctx, TOKENS[100 + 10 * i : 110 + 10 * i]))
        assert nmse(*rows) < 1e-5


def test_4889_shift_of_heads_that_are_rotated_in_part() -> None:
    rows = []
    for fold in (False, True):
        ctx = context(CRAFTED_PHI3)
        feed(ctx, TOKENS[:80])
        shift_context(ctx, 10, 30)
        if fold:
            assert ctx.get_kv_self().update()
        rows.append(feed(ctx, NEXT))
    assert nmse(*rows) < EXACT


@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
def test_ik_2459_shift_behind_a_window(cache_type: str) -> None:
    rows = []
    for t in ("f32", cache_type):
        ctx = context("gemma3", n_ctx=2048, type_k=t, type_v=t)
        feed(ctx, TOKENS[:1600])
        kv = ctx.get_kv_self()
        assert 0 < kv.seq_pos_min(0) < 1600 - 8
        shift_context(ctx, 4, 798)
        assert kv.seq_pos_max(0) == 801
        rows.append(feed(ctx, NEXT))
    assert nmse(*rows) < LOSSY[cache_type]


def test_division_shifts_by_what_positions_lose() -> None:
    """The sign of the shift that llama.cpp's seq_div stores is the other one."""
    ctx = context("llama")
    feed(ctx, TOKENS[:1], 0, 9)
    ctx.get_kv_self().seq_div(0, 0, -1, 3)
    divided = feed(ctx, NEXT)
    assert nmse(divided, feed(ctx, TOKENS[:1] + NEXT, 1, 3)) < EXACT


def test_yarn_magnitude_is_not_applied_by_a_shift() -> None:
    rows = []
    for fold in (False, True):
        ctx = context("llama-rope_yarn")
        feed(ctx, TOKENS[:80])
        for _ in range(3):
            shift_context(ctx, 10, 10)
            if fold:
                assert ctx.get_kv_self().update()
        rows.append(feed(ctx, NEXT))
    assert nmse(*rows) < EXACT


# -- saved state


@by_kind
def test_6705_logits_right_after_a_load(kind: MemoryKind) -> None:
    """There are none, which is said; the next token brings them."""
    ctx, other = kind.context(), kind.context()
    feed(ctx, TOKENS[:20])
    other.state_set_data(ctx.state_get_data())
    with pytest.raises(BatchError, match="no output"):
        other.get_logits_ith(-1)
    assert len(other.get_logits()) == 0
    assert np.array_equal(feed(other, NEXT), feed(ctx, NEXT))


@by_kind
def test_14434_an_empty_slot_and_a_file_that_is_not_there(kind: MemoryKind, tmp_path: Path) -> None:
    ctx = kind.context()
    ctx.state_seq_save_file(tmp_path / "empty", 0)
    feed(ctx, TOKENS[:20], 1)
    before = ctx.get_kv_self().state_hash()
    with pytest.raises(StateFileError, match="No such file"):
        ctx.state_seq_load_file(tmp_path / "none", 1)
    ctx.state_seq_load_file(tmp_path / "empty", 0)
    assert ctx.get_kv_self().state_hash() == before
    ctx.state_seq_load_file(tmp_path / "empty", 1)
    assert ctx.get_kv_self().seq_ids() == ()


@by_kind
def test_17527_restoring_among_scattered_cells(kind: MemoryKind) -> None:
    """Room that is free in pieces is room."""
    ctx = kind.context(n_seq_max=4)
    feed(ctx, TOKENS[:100])
    data, want = ctx.state_seq_get_data(0), feed(ctx, NEXT)
    used_bytes = ctx.get_kv_self().stats().used_bytes
    small = kind.context(n_seq_max=4, kv_bytes_max=4 * used_bytes)
    for begin in range(0, 100, 5):
        for seq_id in (1, 2):
            feed(small, TOKENS[begin : begin + 5], seq_id)
    small.get_kv_self().seq_rm(1, -1, -1)
    small.state_seq_set_data(3, data)
    assert np.array_equal(feed(small, NEXT, 3), want)


@by_kind
def test_27068_a_refused_file_poisons_no_reply(kind: MemoryKind) -> None:
    ctx = kind.context()
    feed(ctx, TOKENS[:30])
    data = ctx.state_get_data()
    want = feed(ctx, NEXT)
    ctx.state_set_data(data)
    for bad in (data[:-1], data[: len(data) // 2], data[:-40] + b"\xff" * 40):
        for load in (ctx.state_set_data, lambda d: ctx.state_seq_set_data(0, d)):
            with pytest.raises(StateFileError):
                load(bad)
    assert np.array_equal(feed(ctx, NEXT), want)


@by_kind
def test_26676_a_restored_session_computes_nothing_again(kind: MemoryKind, tmp_path: Path) -> None:
    turns = [turn("a", 30)]
    first = Session(kind.context())
    turns.append(Turn("reply", say(first, turns).tokens))
    first.save(tmp_path / "chat")
    second = Session(kind.context(), 2)
    second.load(tmp_path / "chat")
    end = say(second, [*turns, turn("b", 10)])
    assert end.stats.n_computed == 11 and end.stats.n_reused == 35


@by_kind
def test_25913_what_can_be_gone_back_to_is_saved(kind: MemoryKind, tmp_path: Path) -> None:
    """Snapshots of states, and cells behind the window."""
    ctx, other = kind.context(), kind.context()
    for begin in (0, 30, 60):
        feed(ctx, TOKENS[begin : begin + 30])
    ctx.state_seq_save_file(tmp_path / "chat", 0)
    other.state_seq_load_file(tmp_path / "chat", 1)
    for at in (60, 30):
        assert other.get_kv_self().seq_pos_reentry(1, at) == at == ctx.get_kv_self().seq_pos_reentry(0, at)
        for each, seq_id in ((ctx, 0), (other, 1)):
            assert each.get_kv_self().seq_rm(seq_id, at, -1)
        assert np.array_equal(feed(other, NEXT, 1), feed(ctx, NEXT))


# -- what a prompt can reuse


@by_kind
def test_15082_a_prompt_that_goes_on_is_reused(kind: MemoryKind) -> None:
    session = Session(kind.context())
    turns = [turn("a", 40)]
    for i in range(3):
        end = say(session, turns)
        turns += [Turn(f"reply {i}", end.tokens), turn(f"b {i}", 10)]
        assert end.stats.n_computed == (40 if i == 0 else 11)


def test_14157_a_model_with_windows_computes_no_long_prompt_again() -> None:
    session = Session(context("gemma3", n_ctx=2048))
    turns = [turn("long", 1500)]
    turns += [Turn("reply", say(session, turns).tokens), turn("more", 10)]
    assert session.ctx.get_kv_self().seq_pos_min(0) > 0
    assert say(session, turns).stats.n_computed == 11


def test_21468_a_full_window_cache_steps_back_anywhere() -> None:
    want = feed(context("gemma3", n_ctx=2048), TOKENS[:20] + NEXT)
    for swa_full in (False, True):
        ctx = context("gemma3", n_ctx=2048, swa_full=swa_full)
        feed(ctx, TOKENS[:1600])
        assert ctx.get_kv_self().seq_rm(0, 20, -1) is swa_full
        assert ctx.get_kv_self().seq_pos_reentry(0, 20) == (20 if swa_full else 0)
    assert nmse(feed(ctx, NEXT), want) < EXACT


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_states], ids=lambda kind: kind.name)
def test_22746_a_snapshot_of_states_is_gone_back_to(kind: MemoryKind) -> None:
    """Another answer to the last question, and another question: only that is computed."""
    session = Session(kind.context())
    turns = [turn("a", 40)]
    turns += [Turn("reply", say(session, turns).tokens), turn("b", 30)]
    first = say(session, turns)
    assert first.stats.n_computed == 31
    again = say(session, turns)
    assert again.tokens == first.tokens and again.stats.n_computed <= 31
    assert say(session, [*turns[:2], turn("c", 30)]).stats.n_computed <= 31 + len(turns[1].tokens)


@by_kind
def test_28425_the_same_prompt_once_more(kind: MemoryKind) -> None:
    """A refused removal is heeded: no state goes on from beyond the prompt."""
    session = Session(kind.context())
    turns = [turn("a", 40)]
    want = say(session, turns)
    for _ in range(2):
        end = say(session, turns)
        assert end.tokens == want.tokens and end.stats.n_computed >= 1
    kv = session.ctx.get_kv_self()
    before = kv.state_hash()
    if kind.has_states:
        assert not kv.seq_rm(0, 3, 7) and kv.state_hash() == before
        assert kv.seq_rm(0, -1, -1)


# -- many sequences


@by_kind
def test_14847_a_sequence_beyond_n_seq_max(kind: MemoryKind) -> None:
    ctx = kind.context(n_seq_max=2)
    feed(ctx, TOKENS[:5], 1)
    kv, before = ctx.get_kv_self(), ctx.get_kv_self().state_hash()
    with pytest.raises(BatchError, match="n_seq_max is 2"):
        feed(ctx, TOKENS[:5], 2)
    for operation in (
        lambda: kv.seq_rm(2, 0, -1), lambda: kv.seq_cp(1, 2, 0, -1), lambda: kv.seq_add(2, 0, -1, 1),
        lambda: kv.seq_pos_max(2), lambda: kv.seq_keep(2), lambda: ctx.state_seq_get_data(2),
        lambda: ctx.state_seq_set_data(2, ctx.state_seq_get_data(1)),
    ):  # fmt: skip
        with pytest.raises(ParamError, match="n_seq_max is 2"):
            operation()
    assert kv.state_hash() == before


def test_14097_windows_take_no_room_from_other_sequences() -> None:
    """Four chats share a bounded memory; each fills what the others leave, page by page."""
    probe = context("gemma3")
    feed(probe, TOKENS[:64])
    page_bytes = probe.get_kv_self().stats().used_bytes
    ctx = context("gemma3", n_ctx=1024, kv_bytes_max=16 * page_bytes)
    for begin in range(0, 192, 16):
        for seq_id in range(4):
            feed(ctx, TOKENS[begin : begin + 16], seq_id)
    assert [ctx.get_kv_self().seq_pos_max(s) for s in range(4)] == [191] * 4
    want = feed(context("gemma3"), TOKENS[:192] + NEXT)
    assert all(nmse(feed(ctx, NEXT, s), want) < EXACT for s in range(4))


# -- failed decodes


@by_kind
def test_14008_positions_after_a_failed_decode(kind: MemoryKind) -> None:
    ctx = kind.context(n_ctx=64)
    feed(ctx, TOKENS[:9])
    kv = ctx.get_kv_self()
    embd = np.full((3, ctx.get_model().hparams.n_embd), np.nan, np.float32)
    failures: list[tuple[Batch, type[EngineError]]] = [
        (Batch.from_embeddings(embd, None, 1), KernelStatusError),
        (Batch.from_tokens(TOKENS[:65], 0, 1), ContextFullError),
        (Batch.from_tokens(TOKENS[:3], 20, 0), BatchError),
    ]
    for batch, error in failures:
        with pytest.raises(error):
            ctx.decode(batch)
        assert (kv.seq_pos_min(1), kv.seq_pos_max(1)) == (-1, -1)
        assert kv.seq_pos_max(0) == 8 and kv.seq_ids() == (0,)


@by_kind
def test_19901_positions_behind_a_step_back(kind: MemoryKind) -> None:
    """Where the next token goes is said, and what was gone back from does not come up again."""
    ctx = kind.context()
    feed(ctx, TOKENS[:30])
    feed(ctx, TOKENS[30:50])
    assert ctx.get_kv_self().seq_rm(0, 30, -1)
    with pytest.raises(BatchError, match="position 50, the sequence goes on at 30"):
        feed(ctx, NEXT, 0, 50)
    got = feed(ctx, NEXT, 0, 30)
    assert nmse(got, feed(ctx, TOKENS[:30] + NEXT, 1)) < EXACT


def test_16876_positions_behind_an_image() -> None:
    """The text goes on behind the image's rows and columns, also in a context that loaded it."""
    ctx, other = context("qwen2vl"), context("qwen2vl")
    feed(ctx, TOKENS[:6])
    image = np.random.default_rng(2).standard_normal((6, 64), np.float32)
    axes = [[6] * 6, [6, 6, 6, 7, 7, 7], [6, 7, 8, 6, 7, 8]]
    ctx.decode(Batch.from_embeddings(image, axes))
    other.state_seq_set_data(0, ctx.state_seq_get_data(0))
    for each in (ctx, other):
        with pytest.raises(BatchError, match="goes on at 9"):
            feed(each, NEXT, 0, 7)
    assert np.array_equal(feed(other, NEXT, 0, 9), feed(ctx, NEXT))
