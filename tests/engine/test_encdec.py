"""Encoder-decoders against the right logits in every way, and what an encode promises."""

from __future__ import annotations

import io
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from cext.executor import STATUS_ABORTED, STATUS_NOT_FINITE
from engine.errors import (
    BatchError,
    ContextFullError,
    KernelStatusError,
    ParamError,
    StateFileError,
    UnsupportedCallError,
)
from engine.generate import Finished, GenerateParams, generate
from engine.gguf import GGUFWriter
from engine.io import BlockReader, BlockWriter
from engine.memory import EncDecMemory, Memory
from engine.sampling import SamplerParams
from engine.scheduler import JobEvent, JobFailed, JobRequest, Scheduler
from engine.session import Session
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import context, load_case, model, nmse

Batch, DecodeStatus = engine.Batch, engine.DecodeStatus
CASES = ["t5", "t5-gated"]
OTHER_SOURCE = [9, 44, 71, 5, 130, 2, 18, 77, 1]


def ids_of(name: str, key: str) -> list[int]:
    """A list of ids of a case: "encoder_tokens", "decoder_tokens" or "greedy"."""
    value = load_case(name)[0][key]
    assert isinstance(value, list)
    return value


def encoded(name: str, seq_id: int | tuple[int, ...] = 0, **more: object) -> engine.ContextEncDec:
    """A context with the case's source in a sequence."""
    ctx = context(name, **more)
    assert isinstance(ctx, engine.ContextEncDec)
    assert ctx.encode(Batch.from_tokens(ids_of(name, "encoder_tokens"), seq_id=seq_id)) is DecodeStatus.OK
    return ctx


def follow(ctx: engine.Context, tokens: list[int], seq_id: int = 0) -> F32Array:
    """Logits of tokens that go on where the sequence ends."""
    assert ctx.decode(Batch.from_tokens(tokens, None, seq_id, "all")) is DecodeStatus.OK
    return ctx.get_logits().copy()


def memory_of(ctx: engine.Context) -> EncDecMemory:
    memory = ctx.get_kv_self()
    assert isinstance(memory, EncDecMemory)
    return memory


# -- the right answers


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n_part", [1, 5, 18])
def test_parts_of_any_length_give_the_right_logits(name: str, n_part: int) -> None:
    tokens, want = ids_of(name, "decoder_tokens"), load_case(name)[1]
    ctx = encoded(name, n_ubatch=4 if n_part == 18 else 256)
    rows = [follow(ctx, tokens[i : i + n_part]) for i in range(0, len(tokens), n_part)]
    assert nmse(np.concatenate(rows), want) <= 1e-10


@pytest.mark.parametrize("name", CASES)
def test_sequences_with_sources_of_their_own_do_not_disturb_each_other(name: str) -> None:
    """Sources of several sequences in one encode, then tokens of all in one decode."""
    source, tokens, want = ids_of(name, "encoder_tokens"), ids_of(name, "decoder_tokens"), load_case(name)[1]
    ctx = context(name)
    sources = [source, OTHER_SOURCE, source]
    ctx.encode(Batch.join([Batch.from_tokens(s, seq_id=i) for i, s in enumerate(sources)]))
    batch = Batch.join([Batch.from_tokens(tokens[:n], seq_id=i, logits="all") for i, n in enumerate((18, 9, 15))])
    ctx.decode(batch)
    got = ctx.get_logits()
    alone = context(name)
    alone.encode(Batch.from_tokens(OTHER_SOURCE))
    assert nmse(got[:18], want) <= 1e-10
    assert nmse(got[18:27], follow(alone, tokens[:9])) <= 1e-10
    assert nmse(got[27:], want[:15]) <= 1e-10


@pytest.mark.parametrize("name", CASES)
def test_a_fork_has_the_source_and_goes_on_while_the_original_is_spoilt(name: str) -> None:
    tokens, want = ids_of(name, "decoder_tokens"), load_case(name)[1]
    ctx = encoded(name)
    follow(ctx, tokens[:9])
    n_pages = memory_of(ctx).source.stats().n_pages
    ctx.get_kv_self().seq_cp(0, 1, -1, -1)
    assert memory_of(ctx).source.stats().n_pages == n_pages
    ctx.encode(Batch.from_tokens(OTHER_SOURCE))
    follow(ctx, tokens[:5])
    assert nmse(follow(ctx, tokens[9:], 1), want[9:]) <= 1e-10


@pytest.mark.parametrize("name", CASES)
def test_a_saved_sequence_goes_on_in_another_decoder(name: str) -> None:
    """Without an encoder, as another sequence, in another n_ctx: the source came with the state."""
    tokens, want = ids_of(name, "decoder_tokens"), load_case(name)[1]
    first = encoded(name)
    follow(first, tokens[:9])
    data = first.state_seq_get_data(0)
    assert len(data) == first.state_seq_get_size(0)
    second = engine.ContextDec(model(name), engine.ContextParams(n_ctx=128, n_seq_max=3, type_k="f32", type_v="f32"))
    second.state_seq_set_data(2, data)
    assert nmse(follow(second, tokens[9:], 2), want[9:]) <= 1e-10


@pytest.mark.parametrize("name", CASES)
def test_generate_answers_a_source_from_the_decoders_start_token(name: str) -> None:
    session = Session(encoded(name))
    params = GenerateParams(SamplerParams(temperature=0.0), n_predict=16, ignore_eog=True)
    for _ in range(2):
        *_, finished = generate(session, ids_of(name, "encoder_tokens"), params)
        assert isinstance(finished, Finished)
        assert list(finished.tokens) == ids_of(name, "greedy")
        assert finished.reason == "length"
        assert (finished.stats.n_prompt, finished.stats.n_computed) == (23, 23)


def test_the_scheduler_answers_many_sources_at_once() -> None:
    ctx = context("t5", n_seq_max=3)
    params = GenerateParams(SamplerParams(temperature=0.0), n_predict=16, ignore_eog=True)
    ended: queue.Queue[tuple[int, JobEvent]] = queue.Queue()
    sources = [ids_of("t5", "encoder_tokens"), OTHER_SOURCE, ids_of("t5", "encoder_tokens"), [5, 1]]

    def tell(i: int) -> Callable[[JobEvent], None]:
        return lambda event: ended.put((i, event))

    scheduler = Scheduler(ctx)
    try:
        for i, source in enumerate(sources):
            scheduler.submit(JobRequest(source, params), tell(i))
        tokens: dict[int, tuple[int, ...]] = {}
        while len(tokens) < len(sources):
            i, event = ended.get(timeout=20)
            assert not isinstance(event, JobFailed), event.error
            if isinstance(event, Finished):
                tokens[i] = event.tokens
    finally:
        scheduler.close()
    assert list(tokens[0]) == list(tokens[2]) == ids_of("t5", "greedy")
    for i in (1, 3):
        *_, alone = generate(Session(context("t5")), sources[i], params)
        assert isinstance(alone, Finished)
        assert tokens[i] == alone.tokens


def test_the_number_of_threads_changes_no_bit() -> None:
    tokens = ids_of("t5", "decoder_tokens")
    results = {follow(encoded("t5", n_threads=n), tokens).tobytes() for n in (1, 2, 3)}
    assert len(results) == 1


def test_small_cache_types_are_near() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    assert nmse(follow(encoded("t5", type_k="f16", type_v="f16"), tokens), want) <= 1e-4


# -- what an encode promises


def test_another_source_begins_the_sequence_anew_and_no_other() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5", seq_id=(0, 1))
    follow(ctx, tokens[:4])
    follow(ctx, tokens[:6], 1)
    ctx.encode(Batch.from_tokens(OTHER_SOURCE))
    kv = memory_of(ctx)
    assert (kv.seq_pos_max(0), kv.seq_pos_max(1)) == (-1, 5)
    assert (kv.n_source(0), kv.n_source(1), kv.n_source(2)) == (len(OTHER_SOURCE), 22, 0)
    assert nmse(follow(ctx, tokens[6:], 1), want[6:]) <= 1e-10
    ctx.encode(Batch.from_tokens(ids_of("t5", "encoder_tokens")))
    assert nmse(follow(ctx, tokens), want) <= 1e-10


def test_removed_positions_leave_the_source_for_another_answer() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5")
    follow(ctx, tokens[3:])
    assert engine.kv_self_view(ctx).seqs[0][0].pos.tolist() == list(range(15))
    assert ctx.get_kv_self().seq_rm(0, -1, -1)
    assert nmse(follow(ctx, tokens), want) <= 1e-10
    ctx.get_kv_self().clear()
    assert ctx.get_kv_self().seq_ids() == ()


def test_the_next_encode_lets_the_old_sources_pages_go() -> None:
    ctx = encoded("t5")
    n_pages = memory_of(ctx).stats().n_pages
    for _ in range(5):
        ctx.encode(Batch.from_tokens(OTHER_SOURCE))
        assert memory_of(ctx).stats().n_pages == n_pages


def test_tokens_without_a_source_are_refused() -> None:
    ctx = encoded("t5")
    before = ctx.get_kv_self().state_hash()
    with pytest.raises(BatchError, match="sequence 1 has no source to decode from: encode it first"):
        ctx.decode(Batch.join([Batch.from_tokens([0]), Batch.from_tokens([0], seq_id=1)]))
    assert ctx.get_kv_self().state_hash() == before
    assert ctx.get_kv_self().seq_ids() == (0,)


def test_sequences_share_tokens_only_where_they_share_a_source() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5", seq_id=(0, 1))
    ctx.decode(Batch.from_tokens(tokens[:5], seq_id=(0, 1)))
    assert nmse(follow(ctx, tokens[5:], 1), want[5:]) <= 1e-10
    ctx.encode(Batch.from_tokens(OTHER_SOURCE))
    before = ctx.get_kv_self().state_hash()
    ctx.get_kv_self().seq_cp(0, 2, -1, -1)
    with pytest.raises(BatchError, match="sequences 0 and 3 share a token but have different sources"):
        ctx.encode(Batch.from_tokens(OTHER_SOURCE[:4], seq_id=3))
        ctx.decode(Batch.from_tokens([0], seq_id=(0, 3)))
    ctx.get_kv_self().seq_keep(1)
    with pytest.raises(ParamError, match="different sources"):
        ctx.encode(Batch.from_tokens(OTHER_SOURCE))
        follow(ctx, [0, 7])
        ctx.get_kv_self().seq_cp(1, 0, 0, 1)
    assert ctx.get_kv_self().state_hash() != before


@pytest.mark.parametrize("status", [STATUS_ABORTED, STATUS_NOT_FINITE])
@pytest.mark.parametrize("n_done", [0, 1, 2])
def test_a_decode_that_ends_in_any_part_leaves_no_trace(
    status: int, n_done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5", seq_id=(0, 1), n_ubatch=4)
    follow(ctx, tokens[:6])
    ends_after(monkeypatch, ctx, n_done, status, lambda: ctx.decode(Batch.from_tokens(tokens[6:], None)))
    assert nmse(follow(ctx, tokens[6:]), want[6:]) <= 1e-10


@pytest.mark.parametrize("status", [STATUS_ABORTED, STATUS_NOT_FINITE])
def test_an_encode_that_ends_with_all_cells_written_leaves_no_trace(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sequences with a source, without one, and one that shares the other's."""
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5", seq_id=(0, 1))
    follow(ctx, tokens[:6])
    batch = Batch.join([Batch.from_tokens(OTHER_SOURCE, seq_id=s) for s in ((1, 2), 3)])
    ends_after(monkeypatch, ctx.get_ctx_enc(), 0, status, lambda: ctx.encode(batch), ctx.get_kv_self())
    assert ctx.get_kv_self().seq_ids() == (0, 1)
    assert nmse(follow(ctx, tokens, 1), want) <= 1e-10
    ctx.abort_flag[0] = 1
    assert ctx.encode(batch) is DecodeStatus.ABORTED
    ctx.abort_flag[0] = 0
    assert nmse(follow(ctx, tokens[6:]), want[6:]) <= 1e-10


def ends_after(
    monkeypatch: pytest.MonkeyPatch,
    ctx: engine.Context,
    n_done: int,
    status: int,
    call: Callable[[], engine.DecodeStatus],
    kv: Memory | None = None,
) -> None:
    """Let the micro batch behind n_done others be computed in full and end badly: hash and sizes are what they were."""
    kv = kv or ctx.get_kv_self()
    before, stats, run, n_runs = kv.state_hash(), kv.stats(), ctx._run, 0

    def run_and_fail(*args: Any) -> bool:
        nonlocal n_runs
        n_runs += 1
        is_done = run(*args)
        if n_runs > n_done and status == STATUS_NOT_FINITE:
            raise KernelStatusError("values that are not finite", "decode", "test")
        return is_done and n_runs <= n_done

    with monkeypatch.context() as patch:
        patch.setattr(ctx, "_run", run_and_fail)
        if status == STATUS_NOT_FINITE:
            with pytest.raises(KernelStatusError):
                call()
        else:
            assert call() is DecodeStatus.ABORTED
    assert n_runs == n_done + 1
    assert kv.state_hash() == before
    assert kv.stats() == stats


def test_a_source_that_is_refused_leaves_no_trace() -> None:
    ctx = encoded("t5", n_ctx=64, n_batch=64, kv_bytes_max=160 << 10)  # two pages of 64 cells
    follow(ctx, [0, 5])
    before = ctx.get_kv_self().state_hash()
    with pytest.raises(BatchError, match="65 tokens in a batch, n_batch is 64"):
        ctx.encode(Batch.from_tokens([3] * 65))
    with pytest.raises(BatchError, match="the vocabulary has 0 to 159"):
        ctx.encode(Batch.from_tokens([160]))
    with pytest.raises(ContextFullError):
        ctx.encode(Batch.join([Batch.from_tokens([3] * 21, seq_id=i) for i in range(3)]))
    assert ctx.get_kv_self().state_hash() == before
    assert ctx.encode(Batch.from_tokens([3] * 21, seq_id=1)) is DecodeStatus.OK


# -- state


def test_a_state_with_a_flipped_byte_changes_nothing() -> None:
    ctx = encoded("t5", seq_id=(0, 3))
    follow(ctx, ids_of("t5", "decoder_tokens")[:7])
    data = ctx.state_get_data()
    other = context("t5")
    other.encode(Batch.from_tokens(OTHER_SOURCE, seq_id=2))
    before = other.get_kv_self().state_hash()
    for at in np.random.default_rng(3).integers(0, len(data), 40):
        bad = bytearray(data)
        bad[at] ^= 1 << int(at) % 8
        with pytest.raises(StateFileError):
            other.state_set_data(bytes(bad))
        assert other.get_kv_self().state_hash() == before
    other.state_set_data(data)
    assert other.get_kv_self().state_hash() == ctx.get_kv_self().state_hash()
    assert other.get_kv_self().seq_ids() == (0, 3)


def test_a_source_alone_is_saved_and_replaces_all_of_a_sequence() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    data = encoded("t5").state_seq_get_data(0)
    other = context("t5")
    other.encode(Batch.from_tokens(OTHER_SOURCE, seq_id=1))
    follow(other, tokens[:3], 1)
    other.state_seq_set_data(1, data)
    assert other.get_kv_self().seq_pos_max(1) == -1
    assert nmse(follow(other, tokens, 1), want) <= 1e-10


def test_saved_tokens_without_their_source_are_refused() -> None:
    ctx = encoded("t5")
    follow(ctx, [0, 5])
    kv = memory_of(ctx)
    sink = io.BytesIO()
    writer = BlockWriter(sink)
    kv.cache.save(writer, 0)
    kv.source.save(writer, 3)  # which has none
    before = kv.state_hash()
    data = sink.getvalue()
    with pytest.raises(StateFileError, match="tokens but no source"):
        kv.load(BlockReader(io.BytesIO(data), len(data)), 1)
    assert kv.state_hash() == before
    follow(ctx, [9])


def test_a_session_file_has_the_source(tmp_path: Path) -> None:
    params = GenerateParams(SamplerParams(temperature=0.0), n_predict=5, ignore_eog=True)
    first = Session(encoded("t5"))
    list(generate(first, ids_of("t5", "encoder_tokens"), params))
    first.save(tmp_path / "session")
    second = Session(context("t5"), seq_id=2)
    second.load(tmp_path / "session")
    assert second.tokens == first.tokens
    assert np.array_equal(follow(second.ctx, [9, 4], 2), follow(first.ctx, [9, 4]))


def test_a_clone_keeps_what_it_has() -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    ctx = encoded("t5")
    follow(ctx, tokens[:8])
    twin = ctx.get_kv_self().clone()
    before = twin.state_hash()
    ctx.encode(Batch.from_tokens(OTHER_SOURCE))
    follow(ctx, tokens)
    assert twin.state_hash() == before
    old = ctx.set_kv_self(twin)
    assert nmse(follow(ctx, tokens[8:]), want[8:]) <= 1e-10
    ctx.encode(Batch.from_tokens(ids_of("t5", "encoder_tokens")))  # into the twin
    assert nmse(follow(ctx, tokens), want) <= 1e-10
    assert old is not None
    assert old.seq_pos_max(0) == len(tokens) - 1
    old.close()
    assert ctx.set_kv_self(None) is twin
    for each in (ctx, ctx.get_ctx_enc()):
        with pytest.raises(
            UnsupportedCallError, match="encode is not available on an encoder whose decoder has no mem"
        ):
            each.encode(Batch.from_tokens(OTHER_SOURCE))


# -- kinds


def test_the_encoder_alone_gives_the_same_rows() -> None:
    batch = Batch.from_tokens(ids_of("t5", "encoder_tokens"))
    ctx = encoded("t5")
    alone = engine.ContextEnc(model("t5"), engine.ContextParams(n_ctx=64, pooling="mean"))
    alone.encode(batch)
    rows = alone.get_embeddings()
    assert rows.shape == (22, 64)
    assert np.array_equal(rows, ctx.get_ctx_enc().get_embeddings())
    assert np.array_equal(alone.get_embeddings_seq(0), rows.mean(axis=0, dtype=np.float64).astype(np.float32))


def test_both_halves_count_in_what_is_needed() -> None:
    """Two layers of 4 heads of 16 values: the decoder's cells, the source's, and the encoder's, which are f32."""
    ctx = encoded("t5", n_ctx=64, type_k="f16", type_v="f16")
    page_bytes = 2 * 2 * 64 * 64 * 2  # layers, K and V, values, cells, bytes
    assert ctx.memory_bytes() == ctx.get_ctx_enc().memory_bytes() + 2 * page_bytes
    assert ctx.get_ctx_enc().memory_bytes() == 2 * page_bytes
    assert ctx.compute_bytes() > ctx.get_ctx_enc().compute_bytes() > 0


def test_contexts_without_a_source_say_so() -> None:
    params = engine.ContextParams(n_ctx=64)
    with pytest.raises(UnsupportedCallError, match="an encoder-decoder needs ContextEncDec"):
        engine.ContextBase(model("t5"), params).decode(Batch.from_tokens([0]))
    with pytest.raises(ParamError, match="ContextKVSelf is no context for t5"):
        engine.ContextKVSelf(model("t5"), params)
    with pytest.raises(ParamError, match="llama has no encoder beside its decoder"):
        engine.ContextDec(model("llama"), params)
    with pytest.raises(UnsupportedCallError, match="encode is not available on ContextDec"):
        engine.ContextDec(model("t5"), params).encode(Batch.from_tokens([0]))


def test_a_conversation_and_nothing_are_refused() -> None:
    session = Session(encoded("t5"))
    turns = [engine.turns.Turn("1", (5, 6))]
    with pytest.raises(UnsupportedCallError, match="a conversation is not available on an encoder-decoder"):
        list(generate(session, turns, GenerateParams()))
    with pytest.raises(BatchError, match="the prompt is empty"):
        list(generate(session, [], GenerateParams()))


# -- adapters


def make_lora(path: Path, names: list[str], rank: int = 2) -> None:
    """An adapter for square matrices of 64."""
    rng = np.random.default_rng(8)
    writer = GGUFWriter(path, "t5")
    writer.add("general.type", "adapter")
    writer.add("adapter.type", "lora")
    writer.add("adapter.lora.alpha", 2.0)
    for name in names:
        for part, shape in (("a", (rank, 64)), ("b", (64, rank))):
            values = (rng.standard_normal(shape) / 8).astype(np.float32)
            writer.add_tensor(f"{name}.lora_{part}", QuantType.F32, values, shape)
    writer.write()


@pytest.mark.parametrize(
    "weight", ["enc.blk.0.attn_q.weight", "dec.blk.1.cross_attn_k.weight", "dec.blk.0.cross_attn_q.weight"]
)
def test_an_adapter_reaches_the_graph_that_uses_its_weight(weight: str, tmp_path: Path) -> None:
    tokens, want = ids_of("t5", "decoder_tokens"), load_case("t5")[1]
    make_lora(tmp_path / "lora.gguf", [weight])
    adapter = engine.load_lora(model("t5"), tmp_path / "lora.gguf")
    ctx = encoded("t5")
    ctx.set_adapter_lora(adapter, 1.0)
    ctx.encode(Batch.from_tokens(ids_of("t5", "encoder_tokens")))
    assert nmse(follow(ctx, tokens), want) > 1e-6
    assert ctx.rm_adapter_lora(adapter)
    ctx.encode(Batch.from_tokens(ids_of("t5", "encoder_tokens")))
    assert nmse(follow(ctx, tokens), want) <= 1e-10
