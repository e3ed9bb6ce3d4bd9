"""Recurrent and hybrid architectures against the right logits, and what their states promise.

One case for each mechanism: short convolution with attention (lfm2), Mamba (mamba), Mamba-2 beside attention (falcon-h1)
and between it, with experts and without positions (granitehybrid), gated delta net with experts (qwen3next) and without (qwen35), RWKV-6 and RWKV-7.
"""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine.context.kinds import ContextBase, ContextHybrid, ContextKVSelf, ContextKVSelfMLA, ContextRecurrent
from engine.errors import UnsupportedCallError
from tests.engine.oracle_cases import (
    bound_of,
    context,
    forked,
    joined,
    load_case,
    model,
    nmse,
    restored,
    token_by_token,
    tokens_of,
)

HYBRID = ["lfm2", "falcon-h1", "granitehybrid", "qwen3next", "qwen35"]
RECURRENT = ["mamba", "rwkv6", "rwkv7"]
CASES = [*HYBRID, *RECURRENT]
Batch = engine.Batch


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n_ubatch", [256, 8, 5, 1])
def test_whole_and_chunked_prompts_give_the_right_logits(name: str, n_ubatch: int) -> None:
    case, want = load_case(name)
    ctx = context(name, n_ubatch=n_ubatch)
    assert ctx.decode(Batch.from_tokens(tokens_of(case), logits="all")) is engine.DecodeStatus.OK
    assert nmse(ctx.get_logits(), want) <= bound_of(case)


@pytest.mark.parametrize("name", CASES)
def test_token_by_token_gives_the_right_logits(name: str) -> None:
    got, want = token_by_token(name)
    for i in range(len(want)):
        assert nmse(got[i], want[i]) <= 10 * bound_of(load_case(name)[0])


def _hashes(name: str, *shapes: tuple[int, int]) -> set[bytes]:
    """State hashes behind the prompt for each (n_ubatch, n_threads)."""
    hashes = set()
    for n_ubatch, n_threads in shapes:
        ctx = context(name, n_ubatch=n_ubatch, n_threads=n_threads)
        ctx.decode(Batch.from_tokens(tokens_of(load_case(name)[0])))
        hashes.add(ctx.get_kv_self().state_hash())
    return hashes


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_threads_changes_no_bit_of_the_state(name: str) -> None:
    assert len(_hashes(name, (256, 1), (256, 2), (256, 2))) == 1


@pytest.mark.parametrize("name", RECURRENT)
def test_the_cut_into_micro_batches_changes_no_bit_of_a_recurrent_state(name: str) -> None:
    assert len(_hashes(name, (256, 2), (8, 2), (5, 1))) == 1


@pytest.mark.parametrize("name", CASES)
def test_sequences_in_one_batch_do_not_disturb_each_other(name: str) -> None:
    got, want = joined(name, n_ubatch=16)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", CASES)
def test_a_fork_goes_on_while_the_original_is_spoilt(name: str) -> None:
    got, want = forked(name)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", CASES)
def test_a_saved_sequence_goes_on_in_another_context(name: str) -> None:
    got, want = restored(name)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", CASES)
def test_a_part_is_not_removed_but_a_tail_behind_a_snapshot_is(name: str) -> None:
    case, want = load_case(name)
    tokens = tokens_of(case)
    half = len(tokens) // 2
    ctx = context(name)
    ctx.decode(Batch.from_tokens(tokens[:half]))
    ctx.decode(Batch.from_tokens(tokens[:5], half))
    kv = ctx.get_kv_self()
    before = kv.state_hash()
    assert not kv.seq_rm(0, 3, 6)
    assert not kv.seq_rm(0, half + 2, -1)
    assert kv.state_hash() == before
    assert kv.seq_rm(0, half, -1)
    ctx.decode(Batch.from_tokens(tokens[half:], half, 0, "all"))
    assert nmse(ctx.get_logits(), want[half:]) <= bound_of(case)


@pytest.mark.parametrize("name", CASES)
def test_an_aborted_decode_leaves_the_states_as_they_were(name: str) -> None:
    case, want = load_case(name)
    tokens = tokens_of(case)
    half = len(tokens) // 2
    ctx = context(name, n_ubatch=4)
    ctx.decode(Batch.from_tokens(tokens[:half]))
    before = ctx.get_kv_self().state_hash()
    calls = 0

    def stop_later() -> bool:
        nonlocal calls
        calls += 1
        if calls > 1:
            ctx.abort_flag[0] = 1
        return False

    ctx.set_abort_callback(stop_later)
    while ctx.decode(Batch.from_tokens(tokens[half:], half)) is engine.DecodeStatus.OK:
        assert ctx.get_kv_self().seq_rm(0, half, -1)
    ctx.set_abort_callback(None)
    ctx.abort_flag[0] = 0
    assert ctx.get_kv_self().seq_pos_max(0) == half - 1
    assert ctx.get_kv_self().state_hash() == before
    ctx.decode(Batch.from_tokens(tokens[half:], half, 0, "all"))
    assert nmse(ctx.get_logits(), want[half:]) <= bound_of(case)


def test_layers_without_positions_are_not_rotated_behind_a_shift() -> None:
    tokens = tokens_of(load_case("granitehybrid")[0])
    logits = []
    for folds in (False, True):
        ctx = context("granitehybrid")
        ctx.decode(Batch.from_tokens(tokens))
        ctx.get_kv_self().seq_add(0, 10, -1, 5)
        if folds:
            ctx.get_kv_self().update()
        ctx.decode(Batch.from_tokens(tokens[:2], len(tokens) + 5, logits="all"))
        logits.append(np.array(ctx.get_logits()))
    assert nmse(*logits) < 1e-12


def test_the_context_kind_follows_from_what_the_model_keeps() -> None:
    assert isinstance(context("mamba"), ContextRecurrent)
    assert isinstance(context("lfm2"), ContextHybrid)
    assert isinstance(context("llama"), ContextKVSelf)
    assert isinstance(context("deepseek2-yarn"), ContextKVSelfMLA)
    with pytest.raises(UnsupportedCallError, match="state_offsets"):
        context("llama").get_kv_self().state_offsets(0)


@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_context_without_memory_starts_from_nothing_each_time(name: str) -> None:
    case, want = load_case(name)
    params = engine.ContextParams(n_ctx=256, n_batch=256, n_ubatch=8, n_threads=2)
    ctx = ContextBase(model(name), params)
    for _ in range(2):
        ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
        assert nmse(ctx.get_logits(), want) <= bound_of(case)
