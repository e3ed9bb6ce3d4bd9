"""Each architecture against the right logits: whole, in chunks, token by token, in company, restored, forked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import engine
from tests.engine.oracle_cases import (
    DATA,
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

CASES = [
    "gemma3", "gemma3-q4_k_m", "gemma4", "gemma4-moe", "llama", "llama-bf16", "llama-bias_tied", "llama-f16",
    "llama-q4_0", "llama-q4_k_m", "llama-rope_linear", "llama-rope_llama3", "llama-rope_yarn", "mixtral", "qwen2",
]  # fmt: skip
Batch = engine.Batch


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n_ubatch", [256, 8, 1])
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


@pytest.mark.parametrize("name", CASES)
def test_sequences_in_one_batch_do_not_disturb_each_other(name: str) -> None:
    got, want = joined(name)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", CASES)
def test_a_fork_goes_on_while_the_original_is_spoilt(name: str) -> None:
    got, want = forked(name)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", CASES)
def test_a_saved_sequence_goes_on_in_another_context(name: str) -> None:
    got, want = restored(name)
    assert nmse(got, want) <= bound_of(load_case(name)[0])


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_context_shift_gives_the_right_logits(name: str) -> None:
    shift = json.loads((DATA / name / "shift.json").read_text())
    want = np.load(DATA / name / "shift_expected.npy")
    keep, discard, n = shift["n_keep"], shift["n_discard"], len(shift["tokens"])
    ctx = context(name)
    ctx.decode(Batch.from_tokens(shift["tokens"]))
    assert ctx.get_kv_self().seq_rm(0, keep, keep + discard) == shift["removed"]
    ctx.get_kv_self().seq_add(0, keep + discard, -1, -discard)
    for i, token in enumerate(shift["next"]):
        ctx.decode(Batch.from_tokens([token], n - discard + i))
        assert nmse(ctx.get_logits_ith(-1), want[i]) <= 1e-5


def test_lora_adapters_give_the_right_logits_and_can_be_removed() -> None:
    folder = DATA / "llama-lora"
    case = json.loads((folder / "case.json").read_text())
    batch = Batch.from_tokens(case["tokens"], logits="all")
    adapter = engine.load_lora(model("llama"), folder / "adapter.gguf")
    ctx = context("llama")
    ctx.decode(batch)
    plain = ctx.get_logits().copy()
    for run in case["runs"]:
        ctx.get_kv_self().clear()
        ctx.set_adapter_lora(adapter, run["scale"])
        ctx.decode(batch)
        assert nmse(ctx.get_logits(), np.load(folder / run["expected"])) <= 5e-6
    assert ctx.rm_adapter_lora(adapter)
    assert not ctx.rm_adapter_lora(adapter)
    ctx.get_kv_self().clear()
    ctx.decode(batch)
    assert np.array_equal(ctx.get_logits(), plain)


def test_control_vectors_give_the_right_logits() -> None:
    folder = DATA / "llama-cvec"
    case = json.loads((folder / "case.json").read_text())
    vector = engine.load_control_vector(model("llama"), folder / "cvec.gguf")
    for run in case["runs"]:
        ctx = context("llama")
        ctx.apply_adapter_cvec(vector, run["scale"], run["layer_start"], run["layer_end"])
        ctx.decode(Batch.from_tokens(case["tokens"], logits="all"))
        assert nmse(ctx.get_logits(), np.load(folder / run["expected"])) <= 5e-6


@pytest.mark.parametrize("name", ["llama", "gemma3", "llama-q4_k_m"])
def test_any_number_of_threads_gives_the_same_bits(name: str) -> None:
    case, _ = load_case(name)
    results = []
    for n_threads in (1, 2, 3):
        ctx = context(name, n_threads=n_threads)
        ctx.decode(Batch.from_tokens(tokens_of(case), logits="all"))
        results.append(ctx.get_logits().tobytes())
    assert len(set(results)) == 1


def test_an_adapter_for_another_model_is_refused() -> None:
    with pytest.raises(engine.errors.AdapterError, match="qwen2"):
        engine.load_lora(model("qwen2"), DATA / "llama-lora" / "adapter.gguf")
    with pytest.raises(engine.errors.AdapterError):
        engine.load_control_vector(model("qwen2"), DATA / "llama-lora" / "adapter.gguf")
