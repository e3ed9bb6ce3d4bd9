"""Saved state of every kind of memory: elsewhere, in other sizes and other cache types, and only where it fits."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import StateFileError, StateMismatchError
from engine.types import F32Array
from tests.engine.crafted import CRAFTED_PHI3
from tests.engine.memory_kinds import KINDS, LOSSY, MemoryKind
from tests.engine.oracle_cases import DATA, context, model, nmse

Batch = engine.Batch
TOKENS = [int(t) for t in np.random.default_rng(5).integers(1, 256, 100)]
N_PAST = 70


def follow(ctx: engine.Context, seq_id: int, tokens: list[int] = TOKENS[N_PAST : N_PAST + 4]) -> F32Array:
    """Logits after each of some more tokens, one by one."""
    rows = []
    for token in tokens:
        ctx.decode(Batch.from_tokens([token], None, seq_id))
        rows.append(ctx.get_logits_ith(-1).copy())
    return np.array(rows)


def started(kind: MemoryKind, seq_id: int = 0, n: int = N_PAST, **more: object) -> engine.Context:
    """A context that holds the first tokens in a sequence."""
    ctx = kind.context(**more)
    ctx.decode(Batch.from_tokens(TOKENS[:n], seq_id=seq_id))
    return ctx


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_sequence_goes_on_anywhere(kind: MemoryKind, tmp_path: Path) -> None:
    """Another sequence of another context with another n_ctx, n_ubatch and number of threads: the same bits."""
    ctx = started(kind)
    path = tmp_path / "sequence"
    assert ctx.state_seq_get_size(0) == ctx.state_seq_save_file(path, 0) == path.stat().st_size
    want = follow(ctx, 0)
    other = kind.context(n_ctx=96, n_ubatch=16, n_threads=1, n_threads_batch=1)
    _fragment(other)
    before = other.get_kv_self().seq_pos_max(3)
    other.state_seq_load_file(path, 1)
    assert np.array_equal(follow(other, 1), want)
    assert other.get_kv_self().seq_pos_max(3) == before
    with pytest.raises(StateMismatchError, match="has position 69, this context has 64"):
        kind.context(n_ctx=64).state_seq_load_file(path, 0)


def _fragment(ctx: engine.Context) -> None:
    """Leave pages with a few cells each, none in order."""
    for begin in range(0, 48, 3):
        for seq_id in (1, 2, 3):
            ctx.decode(Batch.from_tokens(TOKENS[begin : begin + 3], begin, seq_id))
    ctx.get_kv_self().seq_rm(1, 5, 23)
    ctx.get_kv_self().seq_rm(2, 0, -1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_all_sequences_go_on(kind: MemoryKind) -> None:
    ctx = started(kind)
    ctx.get_kv_self().seq_cp(0, 2, 0, -1)
    ctx.decode(Batch.from_tokens(TOKENS[:9], None, 2))
    ctx.decode(Batch.from_tokens(TOKENS[20:40], seq_id=3))
    data = ctx.state_get_data()
    assert len(data) == ctx.state_get_size()
    other = kind.context(n_ctx=128, n_threads=1)
    other.decode(Batch.from_tokens(TOKENS[:5], seq_id=1))
    assert other.state_set_data(data) == len(data)
    assert other.get_kv_self().seq_ids() == (0, 2, 3)
    assert other.get_kv_self().state_hash() == ctx.get_kv_self().state_hash()
    for seq_id in (0, 2, 3):
        assert np.array_equal(follow(other, seq_id), follow(ctx, seq_id))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_hash_says_whether_two_memories_are_the_same(kind: MemoryKind) -> None:
    ctx, other = started(kind), started(kind, n=N_PAST - 1)
    assert ctx.get_kv_self().state_hash() != other.get_kv_self().state_hash()
    ctx.state_seq_set_data(0, other.state_seq_get_data(0))
    assert ctx.get_kv_self().state_hash() == other.get_kv_self().state_hash()


@pytest.mark.parametrize("name", [CRAFTED_PHI3, "gemma3", "qwen35"])
@pytest.mark.parametrize("cache_type", LOSSY)
def test_cache_types_are_converted_when_asked(name: str, cache_type: str) -> None:
    """To a smaller type and back: refused unless asked for; the same bits as cells of that type made anew, or near."""
    wide, narrow = context(name), context(name, type_k=cache_type, type_v=cache_type)
    for ctx in (wide, narrow):
        ctx.decode(Batch.from_tokens(TOKENS[:N_PAST]))
    data = wide.state_seq_get_data(0)
    before = narrow.get_kv_self().state_hash()
    with pytest.raises(StateMismatchError, match=f"K f32, V f32, here K {cache_type}, V {cache_type}"):
        narrow.state_seq_set_data(1, data)
    assert narrow.get_kv_self().state_hash() == before
    narrow.state_seq_set_data(1, data, convert_kv=True)
    want = follow(wide, 0)
    assert nmse(follow(narrow, 1), want) < LOSSY[cache_type]
    wide.state_set_data(narrow.state_get_data(), convert_kv=True)
    assert wide.get_kv_self().seq_ids() == (0, 1)
    assert nmse(follow(wide, 1), follow(narrow, 1)) < LOSSY[cache_type]


def test_only_k_may_have_another_type() -> None:
    first = context("gemma3", type_k="q8_0", type_v="f16")
    first.decode(Batch.from_tokens(TOKENS[:N_PAST]))
    second = context("gemma3", type_k="f16", type_v="f16")
    second.state_seq_set_data(0, first.state_seq_get_data(0), convert_kv=True)
    assert nmse(follow(second, 0), follow(first, 0)) < 1e-5


def test_a_shifted_sequence_is_converted_with_its_shift() -> None:
    first, second = (started(KINDS[1], type_k=t, type_v=t) for t in ("q8_0", "f32"))
    for ctx in (first, second):
        assert ctx.get_kv_self().seq_rm(0, 4, 20)
        ctx.get_kv_self().seq_add(0, 20, -1, -16)
    want = follow(second, 0)
    second.state_seq_set_data(1, first.state_seq_get_data(0), convert_kv=True)
    assert second.get_kv_self().seq_pos_max(1) == N_PAST - 17
    assert nmse(follow(second, 1), want) < LOSSY["q8_0"]


def test_adapters_are_part_of_what_must_be_the_same(tmp_path: Path) -> None:
    """By what they contain, not by their names."""
    folder = DATA / "llama-lora"
    adapter = engine.load_lora(model("llama"), folder / "adapter.gguf")
    ctx = context("llama")
    ctx.set_adapter_lora(adapter, 0.5)
    ctx.decode(Batch.from_tokens(TOKENS[:20]))
    data = ctx.state_seq_get_data(0)
    other = context("llama")
    other.decode(Batch.from_tokens(TOKENS[:5]))
    before = other.get_kv_self().state_hash()
    for scale in (None, 0.25):
        if scale is not None:
            other.set_adapter_lora(adapter, scale)
        with pytest.raises(StateMismatchError, match="another parameters"):
            other.state_seq_set_data(0, data)
        assert other.get_kv_self().state_hash() == before
    elsewhere = tmp_path / "renamed.gguf"
    shutil.copy(folder / "adapter.gguf", elsewhere)
    other.clear_adapter_lora()
    other.set_adapter_lora(engine.load_lora(model("llama"), elsewhere), 0.5)
    other.state_seq_set_data(0, data)
    assert np.array_equal(follow(other, 0), follow(ctx, 0))


def test_control_vectors_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    original = DATA / "llama-cvec" / "cvec.gguf"
    opposite = tmp_path / "cvec.gguf"
    directions = engine.load_control_vector(model("llama"), original).directions
    writer = engine.gguf.GGUFWriter(opposite, "controlvector")
    for il, direction in directions.items():
        writer.add_tensor(f"direction.{il}", engine.types.QuantType.F32, -direction, direction.shape)
    writer.write()
    ctx, rows, signatures = context("llama"), [], set()
    for path in (original, opposite):
        ctx.apply_adapter_cvec(engine.load_control_vector(model("llama"), path))
        ctx.get_kv_self().clear()
        ctx.decode(Batch.from_tokens(TOKENS[:20]))
        rows.append(ctx.get_logits_ith(-1).copy())
        signatures.add(ctx.adapters_signature())
    assert len(signatures) == 2 and nmse(rows[0], rows[1]) > 1e-3


def test_frequencies_for_another_length_are_refused() -> None:
    """llama.cpp #24823: which set a long-context model uses depends on n_ctx, and cells of both do not mix."""
    short, long = (context(CRAFTED_PHI3, n_ctx=n_ctx, n_seq_max=2) for n_ctx in (256, 1024))
    short.decode(Batch.from_tokens(TOKENS[:10]))
    before = long.get_kv_self().state_hash()
    with pytest.raises(StateFileError, match="another cache"):
        long.state_seq_set_data(0, short.state_seq_get_data(0))
    assert long.get_kv_self().state_hash() == before
    shorter = context(CRAFTED_PHI3, n_ctx=14, n_seq_max=1)
    shorter.state_seq_set_data(0, short.state_seq_get_data(0))
    assert np.array_equal(follow(shorter, 0, TOKENS[10:13]), follow(short, 0, TOKENS[10:13]))
