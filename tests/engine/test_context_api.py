"""Every method of the public interface on every kind of context: it works, or it says that the kind has no such thing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import ParamError, UnsupportedCallError
from engine.types import F32Array
from tests.engine.oracle_cases import context, load_case, model, nmse, tokens_of

Batch = engine.Batch
PARAMS = engine.ContextParams(
    n_ctx=64, n_batch=64, n_seq_max=4, n_threads=2, type_k="f32", type_v="f32", pooling="mean"
)
KINDS: dict[str, Callable[[], engine.Context]] = {
    "ContextBase": lambda: engine.ContextBase(model("llama"), PARAMS),
    "ContextKVSelf": lambda: engine.create_context(model("gemma3"), PARAMS),
    "ContextKVSelfMLA": lambda: engine.create_context(model("deepseek2-yarn"), PARAMS),
    "ContextRecurrent": lambda: engine.create_context(model("mamba"), PARAMS),
    "ContextHybrid": lambda: engine.create_context(model("falcon-h1"), PARAMS),
    "ContextDec": lambda: engine.create_context(model("t5"), PARAMS),
    "ContextEnc": lambda: engine.create_context(model("bert-cls"), PARAMS),
}
POOL = engine.ThreadPool(2)
TOKENS = [2, 9, 17, 5]


FILES: dict[str, Callable[[engine.Context, Path], object]] = {
    "state_save_file": lambda c, folder: c.state_save_file(folder / "all"),
    "state_load_file": lambda c, folder: c.state_load_file(folder / "all"),
    "state_seq_save_file": lambda c, folder: c.state_seq_save_file(folder / "one", 0),
    "state_seq_load_file": lambda c, folder: c.state_seq_load_file(folder / "one", 1),
}


def state_of(ctx: engine.Context) -> bytes:
    return ctx.state_seq_get_data(0) if ctx.kind.keeps_memory else b""


EVERYWHERE: dict[str, Callable[[engine.Context], object]] = {
    "n_ctx": lambda c: c.n_ctx(), "n_ctx_per_seq": lambda c: c.n_ctx_per_seq(), "n_batch": lambda c: c.n_batch(),
    "n_ubatch": lambda c: c.n_ubatch(), "n_seq_max": lambda c: c.n_seq_max(), "n_threads": lambda c: c.n_threads(),
    "n_threads_batch": lambda c: c.n_threads_batch(), "synchronize": lambda c: c.synchronize(),
    "get_model": lambda c: c.get_model(), "pooling_type": lambda c: c.pooling_type(),
    "attach_threadpool": lambda c: c.attach_threadpool(POOL), "detach_threadpool": lambda c: c.detach_threadpool(),
    "set_n_threads": lambda c: c.set_n_threads(1, 2), "set_abort_callback": lambda c: c.set_abort_callback(None),
    "set_eval_callback": lambda c: c.set_eval_callback(None), "set_embeddings": lambda c: c.set_embeddings(True),
    "set_causal_attn": lambda c: c.set_causal_attn(True), "clear_adapter_lora": lambda c: c.clear_adapter_lora(),
    "apply_adapter_cvec": lambda c: c.apply_adapter_cvec(None), "perf_get_data": lambda c: c.perf_get_data(),
    "perf_reset": lambda c: c.perf_reset(), "graph_text": lambda c: c.graph_text(),
}  # fmt: skip
DECODERS: dict[str, Callable[[engine.Context], object]] = {
    "decode": lambda c: c.decode(Batch.from_tokens(TOKENS, None)),
    "get_logits": lambda c: c.get_logits(), "get_logits_ith": lambda c: c.get_logits_ith(-1),
}  # fmt: skip
ENCODERS: dict[str, Callable[[engine.Context], object]] = {"encode": lambda c: c.encode(Batch.from_tokens(TOKENS))}
REMEMBERING: dict[str, Callable[[engine.Context], object]] = {
    "get_kv_self": lambda c: c.get_kv_self(), "set_kv_self": lambda c: c.set_kv_self(c.get_kv_self()),
    "kv_self_update": lambda c: c.kv_self_update(), "state_get_size": lambda c: c.state_get_size(),
    "state_get_data": lambda c: c.state_get_data(), "state_set_data": lambda c: c.state_set_data(c.state_get_data()),
    "state_seq_get_size": lambda c: c.state_seq_get_size(0), "state_seq_get_data": lambda c: c.state_seq_get_data(0),
    "state_seq_set_data": lambda c: c.state_seq_set_data(1, state_of(c)),
    "kv_self_clear": lambda c: engine.kv_self_clear(c), "kv_self_n_tokens": lambda c: engine.kv_self_n_tokens(c),
    "kv_self_used_cells": lambda c: engine.kv_self_used_cells(c),
    "kv_self_seq_rm": lambda c: engine.kv_self_seq_rm(c, 0, -1, -1),
    "kv_self_seq_cp": lambda c: engine.kv_self_seq_cp(c, 0, 1, -1, -1),
    "kv_self_seq_keep": lambda c: engine.kv_self_seq_keep(c, 0),
    "kv_self_seq_add": lambda c: engine.kv_self_seq_add(c, 0, -1, -1, 3),
    "kv_self_seq_div": lambda c: engine.kv_self_seq_div(c, 0, -1, -1, 2),
    "kv_self_seq_pos_min": lambda c: engine.kv_self_seq_pos_min(c, 0),
    "kv_self_seq_pos_max": lambda c: engine.kv_self_seq_pos_max(c, 0),
    "kv_self_defrag": lambda c: engine.kv_self_defrag(c), "kv_self_can_shift": lambda c: engine.kv_self_can_shift(c),
    "kv_self_update()": lambda c: engine.kv_self_update(c),
}  # fmt: skip
WITH_CELLS: dict[str, Callable[[engine.Context], object]] = {"kv_self_view": lambda c: engine.kv_self_view(c)}


def compute(ctx: engine.Context) -> None:
    batch = Batch.from_tokens(TOKENS)
    if has_encoder(ctx):
        ctx.encode(batch)
    if not ctx.kind.encodes:
        ctx.decode(batch)


def has_encoder(ctx: engine.Context) -> bool:
    return ctx.kind.encodes or isinstance(ctx, engine.ContextEncDec)


def works_on(ctx: engine.Context) -> set[str]:
    """The methods that the context's kind has."""
    names = set(EVERYWHERE)
    names |= set(ENCODERS) if has_encoder(ctx) else set()
    names |= set(DECODERS) if not ctx.kind.encodes else set()
    if ctx.kind.keeps_memory:
        names |= set(REMEMBERING) | set(FILES)
        names |= set(WITH_CELLS) if ctx.kind.name != "ContextRecurrent" else set()
    return names


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_works_or_is_refused_by_the_kind_s_name(kind: str, tmp_path: Path) -> None:
    ctx = KINDS[kind]()
    assert ctx.kind.name == kind
    works = works_on(ctx)
    for name, call in (EVERYWHERE | ENCODERS | DECODERS | REMEMBERING | WITH_CELLS).items():
        if ctx.kind.keeps_memory:
            ctx.get_kv_self().clear()
        compute(ctx)
        if name in works:
            call(ctx)
            continue
        with pytest.raises(
            UnsupportedCallError, match="RecurrentMemory" if name in WITH_CELLS and kind == "ContextRecurrent" else kind
        ):
            call(ctx)
    for name, to_file in FILES.items():
        if name in works:
            to_file(ctx, tmp_path)
            continue
        with pytest.raises(UnsupportedCallError, match=kind):
            to_file(ctx, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_rows_come_and_go(kind: str) -> None:
    ctx = KINDS[kind]()
    compute(ctx)
    if not ctx.kind.encodes:
        with pytest.raises(UnsupportedCallError, match=kind):
            ctx.get_embeddings()
        ctx.set_embeddings(True)
        if ctx.kind.keeps_memory:
            ctx.get_kv_self().clear()
        compute(ctx)
    n_embd = ctx.get_model().hparams.n_embd
    assert ctx.get_embeddings().shape[1] == len(ctx.get_embeddings_ith(-1)) == len(ctx.get_embeddings_seq(0)) == n_embd


@pytest.mark.parametrize("kind", KINDS)
def test_counters_count_every_call_that_succeeds(kind: str) -> None:
    ctx = KINDS[kind]()
    compute(ctx)
    n = len(TOKENS) * (2 if isinstance(ctx, engine.ContextEncDec) else 1)
    assert ctx.perf_get_data().n_p_eval == n
    ctx.abort_flag[0] = 1
    if ctx.kind.keeps_memory:
        ctx.get_kv_self().seq_rm(0, 0, -1)
    batch = Batch.from_tokens(TOKENS)
    assert (ctx.encode(batch) if has_encoder(ctx) else ctx.decode(batch)) is engine.DecodeStatus.ABORTED
    assert ctx.perf_get_data().n_p_eval == n
    ctx.perf_reset()
    assert ctx.perf_get_data().n_p_eval == 0 and ctx.perf_get_data().t_load_ms > 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_abort_callback_ends_every_kind(kind: str) -> None:
    ctx = KINDS[kind]()
    ctx.set_abort_callback(lambda: True)
    batch = Batch.from_tokens([5] * 60)
    time.sleep(0.002)  # it is asked once a millisecond
    status = ctx.encode(batch) if has_encoder(ctx) else ctx.decode(batch)
    assert status is engine.DecodeStatus.ABORTED
    assert len(ctx.get_embeddings() if ctx.kind.encodes else ctx.get_logits()) == 0
    if ctx.kind.keeps_memory:
        assert ctx.get_kv_self().seq_pos_max(0) == -1


def test_a_kind_that_is_not_the_model_s_is_refused() -> None:
    kinds = {
        engine.ContextKVSelf: "llama",
        engine.ContextKVSelfMLA: "deepseek2-yarn",
        engine.ContextRecurrent: "mamba",
        engine.ContextHybrid: "falcon-h1",
    }
    for kind, own in kinds.items():
        assert kind(model(own), PARAMS).kind.name == kind.__name__
        for other in ({*kinds.values(), "bert-cls", "t5"}) - {own}:
            with pytest.raises(ParamError, match=kind.__name__):
                kind(model(other), PARAMS)


def test_latent_attention_keeps_one_row_for_key_and_value() -> None:
    """Layers of 16 rotated and 32 latent values: 48 in a cell, not 80."""
    ctx = context("deepseek2-yarn")
    ctx.decode(Batch.from_tokens(TOKENS))
    n_layer = model("deepseek2-yarn").hparams.n_layer
    assert ctx.get_kv_self().stats().used_bytes == n_layer * 48 * 4 * 64


def test_a_recurrent_layer_cannot_look_back() -> None:
    for name in ("mamba", "falcon-h1"):
        with pytest.raises(UnsupportedCallError, match="recurrent"):
            context(name).set_causal_attn(False)


def test_without_causal_attention_every_token_sees_all() -> None:
    """The first token's logits depend on the last one; with causal attention they do not."""
    rows: dict[tuple[bool, int], F32Array] = {}
    for causal in (True, False):
        for last in (5, 6):
            ctx = context("llama")
            ctx.set_causal_attn(causal)
            ctx.decode(Batch.from_tokens([2, 9, 17, last], logits="all"))
            rows[causal, last] = ctx.get_logits_ith(0).copy()
    assert np.array_equal(rows[True, 5], rows[True, 6])
    assert nmse(rows[False, 5], rows[False, 6]) > 1e-3
    ctx = context("llama", n_ubatch=2)
    ctx.set_causal_attn(False)
    with pytest.raises(engine.errors.BatchError, match="n_ubatch is 2"):
        ctx.decode(Batch.from_tokens([2, 9, 17]))


def test_old_names_warn_and_do_the_same() -> None:
    old_names = sorted(name for name in engine.__all__ if name.startswith("kv_cache_"))
    assert old_names == sorted(
        f"kv_cache_{name}"
        for name in [
            "clear",
            "n_tokens",
            "used_cells",
            "seq_rm",
            "seq_cp",
            "seq_keep",
            "seq_add",
            "seq_div",
            "seq_pos_max",
            "defrag",
            "can_shift",
            "update",
        ]
    )
    ctx = context("llama")
    ctx.decode(Batch.from_tokens(TOKENS))
    with pytest.warns(DeprecationWarning, match="kv_self_n_tokens"):
        assert engine.kv_cache_n_tokens(ctx) == engine.kv_self_n_tokens(ctx) == 4
    with pytest.warns(DeprecationWarning, match="kv_self_seq_rm"):
        assert engine.kv_cache_seq_rm(ctx, 0, 2, -1)
    assert engine.kv_self_seq_pos_max(ctx, 0) == 1


def test_two_threads_share_a_pool() -> None:
    """Both give the bits that each gives alone."""
    case, want = load_case("llama")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ctx = context("llama")
            ctx.attach_threadpool(POOL)
            for _ in range(40):
                ctx.get_kv_self().clear()
                ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
                assert nmse(ctx.get_logits(), want) <= 5e-6
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_an_observer_sees_every_node_and_the_inputs_of_products() -> None:
    case, want = load_case("llama")
    ctx = context("llama", n_ubatch=10)
    seen: dict[str, list[F32Array]] = {}
    ctx.set_eval_callback(lambda name, values: seen.setdefault(name, []).append(values))
    ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
    assert nmse(ctx.get_logits(), want) <= 5e-6
    rows = {name: np.concatenate(parts) for name, parts in seen.items()}
    path = model("llama").path
    for weight, node in (("attn_output", "attn_out"), ("ffn_down", "ffn_out")):
        for il in range(3):
            product = rows[f"blk.{il}.{weight}.weight"] @ engine.read_tensor(path, f"blk.{il}.{weight}.weight").T
            assert nmse(product, rows[f"{node}-{il}"]) < 1e-12
    assert nmse(rows["output.weight"] @ engine.read_tensor(path, "output.weight").T, want) <= 5e-6
    before = ctx.get_kv_self().state_hash()

    def fail(name: str, values: F32Array) -> None:
        raise ZeroDivisionError

    ctx.set_eval_callback(fail)
    with pytest.raises(ZeroDivisionError):
        ctx.decode(Batch.from_tokens([3], 24))
    assert ctx.get_kv_self().state_hash() == before


@pytest.mark.parametrize("name", ["mixtral", "gemma4-moe"])
def test_an_observer_sees_what_each_expert_multiplies(name: str) -> None:
    """Every token goes to as many experts as are used; the down matrix gets act(gate x) * up x of the same rows."""
    ctx = context(name)
    seen: dict[str, F32Array] = {}
    ctx.set_eval_callback(seen.__setitem__)
    case, _ = load_case(name)
    ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
    il = 0
    n_expert = model(name).gguf.get_int(f"{model(name).arch.name}.expert_count")
    n_used = model(name).gguf.get_int(f"{model(name).arch.name}.expert_used_count")
    is_fused = f"blk.{il}.ffn_gate_up_exps.weight" in model(name).weight_infos
    path = model(name).path
    rows_seen = 0
    for expert in range(n_expert):
        inner = seen.get(f"blk.{il}.ffn_down_exps.weight[{expert}]")
        if inner is None:
            continue
        rows_seen += len(inner)
        if is_fused:
            x = seen[f"blk.{il}.ffn_gate_up_exps.weight[{expert}]"]
            both = x @ engine.read_tensor(path, f"blk.{il}.ffn_gate_up_exps.weight")[expert].T
            gate, up = both[:, : both.shape[1] // 2], both[:, both.shape[1] // 2 :]
            act = gate * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        else:
            x = seen[f"blk.{il}.ffn_up_exps.weight[{expert}]"]
            gate, up = (x @ engine.read_tensor(path, f"blk.{il}.ffn_{p}_exps.weight")[expert].T for p in ("gate", "up"))
            act = gate / (1 + np.exp(-gate))
        assert nmse(inner, (act * up).astype(np.float32)) < 1e-9
    assert rows_seen == n_used * len(tokens_of(case))
