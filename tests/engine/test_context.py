"""The decode loop: refusals, aborts and failures leave no trace; kinds, pools, detached memories."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from cext.threadpool import ThreadPool
from engine.errors import (
    BatchError,
    ContextFullError,
    KernelStatusError,
    ParamError,
    RequestError,
    UnsupportedCallError,
)
from tests.engine.oracle_cases import context, load_case, model, nmse, tokens_of

Batch = engine.Batch
ABORTED = engine.DecodeStatus.ABORTED


def started(name: str = "gemma3", **more: object) -> engine.Context:
    """A context that holds the first 12 tokens of its case in sequence 0."""
    ctx = context(name, **more)
    ctx.decode(Batch.from_tokens(tokens_of(load_case(name)[0])[:12]))
    return ctx


REFUSED = {
    "id beyond the vocabulary": (Batch.from_tokens([3, 512], 12), BatchError, "token 1 has id 512"),
    "negative id": (Batch.from_tokens([-1], 12), BatchError, "id -1"),
    "a gap": (Batch.from_tokens([3], 13), BatchError, "position 13, the sequence goes on at 12"),
    "a repeat": (Batch.from_tokens([3], 11), BatchError, "position 11"),
    "out of order": (Batch.from_tokens([3, 4], [12, 14]), BatchError, "position 14 after 12"),
    "sequence out of range": (Batch.from_tokens([3], 0, seq_id=4), BatchError, "n_seq_max is 4"),
    "several sequences, one wrong": (
        Batch.join([Batch.from_tokens([3], 12), Batch.from_tokens([3, 4], [0, 2], seq_id=1)]),
        BatchError,
        "token 2 of sequence 1 has position 2",
    ),
    "more than n_ctx": (Batch.from_tokens([3] * 250, 12), ContextFullError, "262 positions needed, 256 available"),
    "more than n_batch": (Batch.from_tokens([3] * 257, 12), BatchError, "n_batch is 256"),
    "embeddings of another width": (Batch.from_embeddings(np.zeros((1, 63), np.float32), 12), BatchError, "n_embd 64"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_batch_says_why_and_changes_nothing(name: str) -> None:
    batch, error, words = REFUSED[name]
    ctx = started()
    before = ctx.get_kv_self().state_hash()
    with pytest.raises(error, match=words):
        ctx.decode(batch)
    assert ctx.get_kv_self().state_hash() == before
    assert ctx.decode(Batch.from_tokens([5], 12)) is engine.DecodeStatus.OK


@pytest.mark.parametrize("call", ["nothing", "no row"])
def test_batches_that_are_no_batches_are_refused(call: str) -> None:
    with pytest.raises(BatchError):
        Batch.from_tokens([]) if call == "nothing" else Batch.from_tokens(np.zeros((2, 2), np.int32))
    with pytest.raises(BatchError):
        Batch.join([])
    with pytest.raises(BatchError):
        Batch.from_tokens([2**40])


def test_the_abort_flag_stops_a_decode_and_leaves_no_trace() -> None:
    ctx = started()
    before = ctx.get_kv_self().state_hash()
    ctx.abort_flag[0] = 1
    assert ctx.decode(Batch.from_tokens([3] * 100, 12)) is ABORTED
    ctx.abort_flag[0] = 0
    assert ctx.get_kv_self().state_hash() == before
    assert len(ctx.get_logits()) == 0


def test_the_abort_callback_stops_a_decode_and_its_errors_come_through() -> None:
    ctx = started(n_ubatch=1)
    before = ctx.get_kv_self().state_hash()
    calls = []

    def stop_later() -> bool:
        calls.append(1)
        return len(calls) > 2

    ctx.set_abort_callback(stop_later)
    assert ctx.decode(Batch.from_tokens([3] * 200, 12)) is ABORTED
    assert ctx.get_kv_self().state_hash() == before

    def fail() -> bool:
        raise ZeroDivisionError

    ctx.set_abort_callback(fail)
    with pytest.raises(ZeroDivisionError):
        ctx.decode(Batch.from_tokens([3] * 200, 12))
    assert ctx.get_kv_self().state_hash() == before
    ctx.set_abort_callback(None)
    assert ctx.decode(Batch.from_tokens([3] * 200, 12)) is engine.DecodeStatus.OK


def test_values_that_are_not_finite_name_the_first_node_and_leave_no_trace() -> None:
    ctx = started("llama")
    before = ctx.get_kv_self().state_hash()
    embd = np.ones((2, 64), np.float32)
    embd[1, 3] = np.nan
    with pytest.raises(KernelStatusError, match=r"attn_norm-0|Qcur-0|inp_embd|mul_mat"):
        ctx.decode(Batch.from_embeddings(embd, 12))
    assert ctx.get_kv_self().state_hash() == before


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen2"])
def test_a_context_without_a_cache_gives_the_same_logits(name: str) -> None:
    case, want = load_case(name)
    ctx = engine.ContextBase(model(name), engine.ContextParams(n_ctx=64, n_seq_max=4))
    for _ in range(2):  # nothing stays behind
        ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
        assert nmse(ctx.get_logits(), want) <= 5e-6
    for call in (ctx.get_kv_self, lambda: ctx.set_kv_self(None), ctx.state_get_data):
        with pytest.raises(UnsupportedCallError, match="ContextBase"):
            call()


def test_outputs_are_addressed_by_token_or_from_the_end() -> None:
    ctx = context("llama")
    tokens = tokens_of(load_case("llama")[0])[:6]
    ctx.decode(Batch.from_tokens(tokens, logits=[False, True, False, True, False, True]))
    assert ctx.get_logits().shape == (3, 512)
    assert np.array_equal(ctx.get_logits_ith(3), ctx.get_logits_ith(-2))
    for i in (0, 6, -4):
        with pytest.raises(BatchError, match="no output"):
            ctx.get_logits_ith(i)
    with pytest.raises(UnsupportedCallError, match="embeddings"):
        ctx.get_embeddings()


def test_hidden_rows_come_with_the_logits_when_asked_for() -> None:
    case, want = load_case("llama-bias_tied")
    ctx = context("llama-bias_tied", embeddings=True)
    ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
    assert nmse(ctx.get_logits(), want) <= 5e-6
    head = engine.read_tensor(model("llama-bias_tied").path, "token_embd.weight")
    assert nmse((ctx.get_embeddings() @ head.T).astype(np.float32), want) <= 5e-6


def test_a_memory_can_be_taken_out_and_put_into_another_context() -> None:
    case, want = load_case("gemma3")
    tokens = tokens_of(case)
    first, second = started(), context("gemma3")
    kv = first.get_kv_self()
    with pytest.raises(ParamError, match="attached to another"):
        second.set_kv_self(kv)
    assert first.set_kv_self(None) is kv
    with pytest.raises(UnsupportedCallError):
        first.decode(Batch.from_tokens([1], 12))
    second.set_kv_self(kv)
    second.decode(Batch.from_tokens(tokens[12:], 12, logits="all"))
    assert nmse(second.get_logits(), want[12:]) <= 5e-6
    with pytest.raises(ParamError, match="another model"):
        context("llama").set_kv_self(context("llama", type_k="f16").set_kv_self(None))


def test_contexts_share_thread_pools_and_change_their_number() -> None:
    case, want = load_case("llama")
    pool = ThreadPool(2)
    for ctx in (context("llama"), context("llama")):
        ctx.attach_threadpool(pool)
        ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
        assert nmse(ctx.get_logits(), want) <= 5e-6
        ctx.detach_threadpool()
        ctx.set_n_threads(1, 3)
        assert (ctx.n_threads(), ctx.n_threads_batch()) == (1, 3)
        ctx.get_kv_self().clear()
        ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
        assert nmse(ctx.get_logits(), want) <= 5e-6
        with pytest.raises(ParamError):
            ctx.set_n_threads(0, 1)


def test_tokens_shared_by_two_sequences_are_stored_once() -> None:
    ctx = context("llama")
    tokens = tokens_of(load_case("llama")[0])
    ctx.decode(Batch.from_tokens(tokens[:8], seq_id=(0, 1)))
    assert engine.kv_self_used_cells(ctx) == 8
    ctx.decode(Batch.join([Batch.from_tokens(tokens[8:], 8, s, "all") for s in (0, 1)]))
    logits = ctx.get_logits()
    half = len(logits) // 2
    assert nmse(logits[:half], load_case("llama")[1][8:]) <= 5e-6
    assert np.array_equal(logits[:half], logits[half:])


@pytest.mark.parametrize(
    "params",
    [{"n_ubatch": 0}, {"n_ctx": -1}, {"type_k": "q3"}, {"n_threads": 0}, {"pooling": "max"}, {"n_seq_max": 0}],
)
def test_parameters_out_of_range_are_refused(params: dict[str, object]) -> None:
    with pytest.raises(ParamError):
        engine.ContextParams(**params)  # type: ignore[arg-type]


def test_a_cache_type_that_does_not_fit_the_heads_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"q8_0.*16|16.*q8_0"):
        context("llama", type_k="q8_0")


def test_counters_count_what_was_computed() -> None:
    ctx = started()
    ctx.decode(Batch.from_tokens([3], 12))
    perf = ctx.perf_get_data()
    assert (perf.n_p_eval, perf.n_eval) == (12, 1)
    assert perf.t_p_eval_ms > 0
    ctx.perf_reset()
    assert ctx.perf_get_data().n_p_eval == 0
