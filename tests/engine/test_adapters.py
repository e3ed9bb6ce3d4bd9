"""Adapters: several at once, removed, cleared, for some layers only; what has no place in the graph is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import AdapterError, ParamError
from engine.gguf import GGUFWriter
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import DATA, context, load_case, model, nmse, tokens_of

Batch = engine.Batch
LORA, CVEC = DATA / "llama-lora", DATA / "llama-cvec"
TOKENS: list[int] = json.loads((LORA / "case.json").read_text())["tokens"]
EXACT = 5e-6


def logits(ctx: engine.Context) -> F32Array:
    ctx.get_kv_self().clear()
    ctx.decode(Batch.from_tokens(TOKENS, logits="all"))
    return ctx.get_logits().copy()


def write_lora(path: Path, name: str, a: tuple[int, ...], b: tuple[int, ...], arch: str = "llama") -> Path:
    writer = GGUFWriter(path, arch)
    writer.add("adapter.type", "lora")
    writer.add("adapter.lora.alpha", 2.0)
    rng = np.random.default_rng(4)
    for side, shape in (("a", a), ("b", b)):
        writer.add_tensor(f"{name}.lora_{side}", QuantType.F32, rng.standard_normal(shape, dtype=np.float32))
    writer.write()
    return path


def write_cvec(path: Path, directions: dict[int, F32Array]) -> Path:
    writer = GGUFWriter(path, "controlvector")
    for il, direction in directions.items():
        writer.add_tensor(f"direction.{il}", QuantType.F32, direction)
    writer.write()
    return path


def test_several_adapters_add_up_and_go_one_by_one() -> None:
    one, two = (engine.load_lora(model("llama"), LORA / "adapter.gguf") for _ in range(2))
    full, half = (np.load(LORA / f"expected_scale_{s}.npy") for s in ("1.0", "0.5"))
    ctx = context("llama")
    plain = logits(ctx)
    ctx.set_adapter_lora(one, 0.5)
    ctx.set_adapter_lora(two, 0.5)
    assert nmse(logits(ctx), full) <= EXACT
    ctx.set_adapter_lora(two, 0.0)
    assert nmse(logits(ctx), half) <= EXACT
    ctx.set_adapter_lora(two, 1.5)
    ctx.set_adapter_lora(one, -0.5)
    assert nmse(logits(ctx), full) <= EXACT
    assert ctx.rm_adapter_lora(one) and not ctx.rm_adapter_lora(one)
    ctx.set_adapter_lora(two, 0.5)
    assert nmse(logits(ctx), half) <= EXACT
    ctx.set_adapter_lora(one, 3.0)
    ctx.clear_adapter_lora()
    assert np.array_equal(logits(ctx), plain) and not ctx.rm_adapter_lora(two)


def test_an_adapter_and_a_control_vector_at_once(tmp_path: Path) -> None:
    """The vector of the second layer is the difference that it makes to that layer's output."""
    ctx = context("llama")
    seen: dict[str, F32Array] = {}
    ctx.set_eval_callback(lambda name, values: seen.__setitem__(name, values))
    ctx.set_adapter_lora(engine.load_lora(model("llama"), LORA / "adapter.gguf"), 1.0)
    logits(ctx)
    before = seen["l_out-1"]
    direction = np.linspace(-1, 1, 64, dtype=np.float32)
    ctx.apply_adapter_cvec(
        engine.load_control_vector(model("llama"), write_cvec(tmp_path / "v", {1: direction, 2: direction})),
        2.0,
        1,
        1,
    )
    assert nmse(logits(ctx), np.load(LORA / "expected_scale_1.0.npy")) > 1e-4
    assert nmse(seen["l_out-1"], before + 2 * direction) < 1e-12


def test_a_sweep_over_scales_keeps_few_plans() -> None:
    ctx = context("llama")
    adapter = engine.load_lora(model("llama"), LORA / "adapter.gguf")
    for i in range(40):
        ctx.set_adapter_lora(adapter, i / 40)
        ctx.decode(Batch.from_tokens(TOKENS[:1], i))
    assert len(ctx.stage_ns()) <= 16


def test_control_vectors_act_on_the_layers_that_are_named() -> None:
    case = json.loads((CVEC / "case.json").read_text())
    vector = engine.load_control_vector(model("llama"), CVEC / "cvec.gguf")
    ctx = context("llama")
    plain = logits(ctx)
    for run in case["runs"]:
        ctx.apply_adapter_cvec(vector, run["scale"], run["layer_start"], run["layer_end"])
        assert nmse(logits(ctx), np.load(CVEC / run["expected"])) <= EXACT
        with pytest.raises(ParamError, match="directions for"):
            ctx.apply_adapter_cvec(vector, 1.0, 2, 1)
        assert nmse(logits(ctx), np.load(CVEC / run["expected"])) <= EXACT
    ctx.apply_adapter_cvec(None)
    assert np.array_equal(logits(ctx), plain)


def test_what_the_graph_has_no_place_for_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    experts = "blk.0.ffn_gate_exps.weight"
    n_expert, n_out, n_in = model("mixtral").weight_infos[experts].shape
    with pytest.raises(AdapterError, match="no matrix"):
        path = write_lora(tmp_path / "a", experts, (n_expert, 4, n_in), (n_expert, n_out, 4))
        engine.load_lora(model("mixtral"), path)
    table = "token_embd.weight"  # the head of this model is another matrix
    rows = model("llama").weight_infos[table].shape[0]
    adapter = engine.load_lora(model("llama"), write_lora(tmp_path / "b", table, (4, 64), (rows, 4)))
    ctx = context("llama")
    plain = logits(ctx)
    with pytest.raises(AdapterError, match=table):
        ctx.set_adapter_lora(adapter)
    assert np.array_equal(logits(ctx), plain) and not ctx.rm_adapter_lora(adapter)
    tied = model("llama-bias_tied").weight_infos[table].shape[0]
    of_head = engine.load_lora(model("llama-bias_tied"), write_lora(tmp_path / "c", table, (4, 64), (tied, 4)))
    context("llama-bias_tied").set_adapter_lora(of_head)


def test_adapters_of_another_model_are_refused(tmp_path: Path) -> None:
    adapter = engine.load_lora(model("llama"), LORA / "adapter.gguf")
    with pytest.raises(AdapterError, match="another model"):
        context("llama-q4_0").set_adapter_lora(adapter)
    vector = engine.load_control_vector(model("llama"), CVEC / "cvec.gguf")
    with pytest.raises(AdapterError, match="n_embd 256"):
        context("llama-q4_0").apply_adapter_cvec(vector)
    with pytest.raises(AdapterError, match="layers 0 to 2"):
        path = write_cvec(tmp_path / "v", {3: np.ones(64, np.float32)})
        engine.load_control_vector(model("llama"), path)


def test_an_encoder_has_no_place_for_a_control_vector(tmp_path: Path) -> None:
    vector = engine.load_control_vector(model("bert-cls"), write_cvec(tmp_path / "v", {1: np.ones(64, np.float32)}))
    ctx = engine.create_context(model("bert-cls"), engine.ContextParams(n_ctx=64))
    with pytest.raises(AdapterError, match="layer 1"):
        ctx.apply_adapter_cvec(vector)
    case, _ = load_case("bert-cls")
    ctx.encode(Batch.from_tokens(tokens_of(case)))
