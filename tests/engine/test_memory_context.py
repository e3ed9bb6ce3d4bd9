"""Memories under real models: what must hold for logits, whatever was shifted, copied, saved or damaged."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import StateFileError
from engine.memory import kv_cache_names
from engine.memory.kv_self import (
    kv_self_can_shift,
    kv_self_clear,
    kv_self_defrag,
    kv_self_n_tokens,
    kv_self_seq_add,
    kv_self_seq_cp,
    kv_self_seq_div,
    kv_self_seq_keep,
    kv_self_seq_pos_max,
    kv_self_seq_pos_min,
    kv_self_seq_rm,
    kv_self_update,
    kv_self_used_cells,
    kv_self_view,
)
from engine.types import F32Array
from tests.engine.oracle_cases import context, nmse

Batch = engine.Batch
MODELS = ("llama", "gemma3", "llama-rope_yarn", "llama-rope_llama3", "llama-rope_linear")
EXACT = 1e-10
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, 300, 256)]


def started(name: str, n: int = 100, seq_id: int = 0, **more: object) -> engine.Context:
    """A context that holds n tokens in a sequence."""
    ctx = context(name, **more)
    ctx.decode(Batch.from_tokens(TOKENS[:n], seq_id=seq_id))
    return ctx


def follow(ctx: engine.Context, tokens: list[int], seq_id: int = 0) -> F32Array:
    """Logits after each of some more tokens, one by one."""
    rows = []
    for token in tokens:
        ctx.decode(Batch.from_tokens([token], None, seq_id=seq_id))
        rows.append(ctx.get_logits_ith(-1).copy())
    return np.array(rows)


@pytest.mark.parametrize("name", MODELS)
def test_everything_moved_is_nothing_moved(name: str) -> None:
    """Only differences of positions count; YaRN's magnitude is not applied again."""
    wanted = follow(started(name), TOKENS[100:104])
    for fold in (False, True):
        ctx = started(name)
        kv_self_seq_add(ctx, 0, 0, -1, 77)
        if fold:
            kv_self_update(ctx)
        assert kv_self_seq_pos_max(ctx, 0) == 176
        assert nmse(follow(ctx, TOKENS[100:104]), wanted) < EXACT


@pytest.mark.parametrize("name", MODELS)
def test_shifted_back_is_not_shifted(name: str) -> None:
    wanted = follow(started(name), TOKENS[100:104])
    ctx = started(name)
    kv_self_seq_add(ctx, 0, 40, -1, 50)
    kv_self_seq_add(ctx, 0, 0, 40, 20)
    kv_self_update(ctx)
    kv_self_seq_add(ctx, 0, 0, -1, -20)
    kv_self_seq_add(ctx, 0, 60, -1, -30)
    assert nmse(follow(ctx, TOKENS[100:104]), wanted) < EXACT


@pytest.mark.parametrize("name", MODELS)
def test_deltas_are_what_folded_k_is(name: str) -> None:
    rows = []
    for fold in (False, True):
        ctx = started(name)
        for _ in range(3):
            n_past = kv_self_seq_pos_max(ctx, 0) + 1
            assert kv_self_seq_rm(ctx, 0, 8, 30)
            kv_self_seq_add(ctx, 0, 30, n_past, -22)
            if fold:
                assert kv_self_update(ctx)
            rows_now = follow(ctx, TOKENS[100:110])
        rows.append(rows_now)
    assert nmse(rows[0], rows[1]) < EXACT


@pytest.mark.parametrize("name", MODELS)
def test_divided_positions(name: str) -> None:
    """The sign of the shift that a division makes: K made for p // d and K divided to it agree."""
    ctx = started(name, 1)
    kv_self_seq_add(ctx, 0, 0, -1, 9)
    kv_self_seq_div(ctx, 0, 0, -1, 3)
    wanted = started(name, 1)
    kv_self_seq_add(wanted, 0, 0, -1, 3)
    assert nmse(follow(ctx, TOKENS[1:5]), follow(wanted, TOKENS[1:5])) < EXACT
    ctx = started(name, 90)
    kv_self_seq_div(ctx, 0, 30, 60, 3)
    kv_self_seq_add(ctx, 0, 60, -1, -40)
    assert kv_self_seq_pos_max(ctx, 0) == 49
    assert np.isfinite(follow(ctx, TOKENS[90:95])).all()


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_copy_then_remove_is_a_fresh_run(name: str) -> None:
    ctx = started(name, 100)
    kv_self_seq_cp(ctx, 0, 2, -1, -1)
    assert kv_self_seq_rm(ctx, 2, 90, -1)
    assert np.array_equal(follow(ctx, TOKENS[200:205], 2), follow(started(name, 90), TOKENS[200:205]))
    assert np.array_equal(follow(ctx, TOKENS[100:103]), follow(started(name, 100), TOKENS[100:103]))
    kv_self_seq_keep(ctx, 2)
    assert (kv_self_n_tokens(ctx), kv_self_used_cells(ctx), kv_self_seq_pos_min(ctx, 2)) == (95, 95, 0)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_shared_tokens_are_seen_by_each(name: str) -> None:
    ctx = context(name)
    ctx.decode(Batch.from_tokens(TOKENS[:70], seq_id=(0, 1, 3)))
    assert (kv_self_n_tokens(ctx), kv_self_used_cells(ctx)) == (210, 70)
    for seq_id in (1, 0, 3):
        assert np.array_equal(follow(ctx, TOKENS[70:74], seq_id), follow(started(name, 70), TOKENS[70:74]))


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_placement_changes_no_bit(name: str) -> None:
    """Scattered cells, compacted cells, a clone, another n_ctx, loaded into another sequence: the same logits."""
    wanted = follow(started(name), TOKENS[100:104])
    ctx = context(name)
    for begin in range(0, 100, 5):
        for seq_id in (1, 2):
            ctx.decode(Batch.from_tokens(TOKENS[begin : begin + 5], begin, seq_id))
    assert kv_self_seq_rm(ctx, 1, 0, -1)
    data = ctx.state_seq_get_data(2)
    kv_self_defrag(ctx)
    twin = ctx.get_kv_self().clone()
    assert np.array_equal(follow(ctx, TOKENS[100:104], 2), wanted)
    ctx.set_kv_self(twin)
    assert np.array_equal(follow(ctx, TOKENS[100:104], 2), wanted)
    other = started(name, 60, 1, n_ctx=128, n_ubatch=7)
    kv_self_seq_rm(other, 1, 20, 40)
    other.state_seq_set_data(3, data)
    assert np.array_equal(follow(other, TOKENS[100:104], 3), wanted)


def test_view_shows_cells_and_runs() -> None:
    ctx = started("gemma3")
    kv_self_seq_cp(ctx, 0, 1, 0, -1)
    kv_self_seq_add(ctx, 1, 50, -1, 3)
    view = kv_self_view(ctx)
    assert view.used_cells == (100, 100) and len(view.seqs) == 2 and [s.seq_id for s in view.seqs[0]] == [0, 1]
    assert view.seqs[0][1].pos.tolist() == [*range(50), *range(53, 103)]
    assert view.seqs[0][1].frame == -3 and set(view.seqs[0][1].delta.tolist()) == {0, -3}
    kv_self_clear(ctx)
    assert view.used_cells == (100, 100) and kv_self_view(ctx).seqs == ((), ())
    assert kv_self_can_shift(ctx) and not kv_self_update(ctx)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_damaged_files_change_nothing(name: str, tmp_path: Path) -> None:
    ctx = started(name, 20)
    path = tmp_path / "state"
    ctx.state_seq_save_file(path, 0, TOKENS[:20])
    data = path.read_bytes()
    before, rng = ctx.get_kv_self().state_hash(), random.Random(name)
    for _ in range(250):
        bad = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(bad) if rng.random() < 0.5 else 300)
            bad[at] ^= rng.randrange(1, 256)
        if rng.random() < 0.3:
            del bad[rng.randrange(len(bad)) :]
        path.write_bytes(bad)
        with pytest.raises(StateFileError):
            ctx.state_seq_load_file(path, rng.randrange(4))
        assert ctx.get_kv_self().state_hash() == before
    path.write_bytes(data)
    assert ctx.state_seq_load_file(path, 1).tokens.tolist() == TOKENS[:20]
    assert np.array_equal(follow(ctx, TOKENS[20:24], 1), follow(started(name, 20), TOKENS[20:24]))


def test_older_names_warn() -> None:
    ctx = started("llama", 10)
    with pytest.warns(DeprecationWarning, match="kv_cache_seq_rm is now called kv_self_seq_rm"):
        assert kv_cache_names.kv_cache_seq_rm(ctx, 0, 5, -1)
    with pytest.warns(DeprecationWarning):
        assert kv_cache_names.kv_cache_n_tokens(ctx) == 5
