"""The tiny models under tests/data with their right answers: loaded once, compared by NMSE."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

import engine
from engine.types import F32Array
from tests.engine.crafted import CRAFTED_PHI3, crafted_phi3

DATA = Path(__file__).resolve().parent.parent / "data"


def load_case(name: str) -> tuple[dict[str, object], F32Array]:
    """case.json and the expected logits f32[n_tokens, n_vocab]."""
    folder = DATA / name
    return json.loads((folder / "case.json").read_text()), np.load(folder / "expected.npy")


@cache
def model(name: str) -> engine.Model:
    """The case's model, opened once for all tests."""
    path = crafted_phi3() if name == CRAFTED_PHI3 else DATA / name / "model.gguf"
    return engine.load_model(path, n_threads=2)


def context(name: str, **more: object) -> engine.Context:
    """A context with an f32 cache, as the bounds of f32 models need it."""
    params: dict[str, object] = {
        "n_ctx": 256, "n_batch": 256, "n_ubatch": 256, "n_seq_max": 4, "n_threads": 2, "type_k": "f32", "type_v": "f32",
        **more,
    }  # fmt: skip
    return engine.create_context(model(name), engine.ContextParams(**params))  # type: ignore[arg-type]


def tokens_of(case: dict[str, object]) -> list[int]:
    """The case's input ids."""
    tokens = case["tokens"]
    assert isinstance(tokens, list)
    return tokens


def bound_of(case: dict[str, object]) -> float:
    """The largest NMSE that counts as equal: four times the noise of 8-bit activations for quantised models."""
    if "quant" not in case:
        return 5e-6
    stats = case["stats"]
    assert isinstance(stats, dict)
    noise = float(str(case["rms_llama_cpp"])) / float(stats["expected_std"])
    return max(4 * noise * noise, 1e-5)


def nmse(got: F32Array, want: F32Array) -> float:
    """sum((got - want)^2) / sum(want^2), in float64."""
    assert got.shape == want.shape
    difference = got.astype(np.float64) - want
    return float((difference**2).sum() / (want.astype(np.float64) ** 2).sum())


Compared = tuple[F32Array, F32Array]
"""What was computed and what must come out, f32[n, n_vocab] each."""


def token_by_token(name: str) -> Compared:
    """Logits of each token, decoded alone."""
    case, want = load_case(name)
    ctx = context(name)
    rows = []
    for i, token in enumerate(tokens_of(case)):
        ctx.decode(engine.Batch.from_tokens([token], i))
        rows.append(ctx.get_logits_ith(-1).copy())
    return np.stack(rows), want


def joined(name: str, **more: object) -> Compared:
    """Logits of three sequences of different lengths in one batch."""
    case, want = load_case(name)
    tokens = tokens_of(case)
    ctx = context(name, **more)
    lengths = [len(tokens), len(tokens) // 2, len(tokens) - 3]
    batches = [engine.Batch.from_tokens(tokens[:n], seq_id=i, logits="all") for i, n in enumerate(lengths)]
    ctx.decode(engine.Batch.join(batches))
    return ctx.get_logits(), want[np.concatenate([np.arange(n) for n in lengths])]


def forked(name: str) -> Compared:
    """Logits of a copy that goes on while the original is spoilt and removed."""
    case, want = load_case(name)
    tokens = tokens_of(case)
    half = len(tokens) // 2
    ctx = context(name)
    ctx.decode(engine.Batch.from_tokens(tokens[:half]))
    ctx.get_kv_self().seq_cp(0, 1, -1, -1)
    ctx.decode(engine.Batch.from_tokens(tokens[:5], half))
    ctx.get_kv_self().seq_rm(0, -1, -1)
    ctx.decode(engine.Batch.from_tokens(tokens[half:], half, 1, "all"))
    return ctx.get_logits(), want[half:]


def restored(name: str) -> Compared:
    """Logits of a saved half that goes on as another sequence of another context."""
    case, want = load_case(name)
    tokens = tokens_of(case)
    half = len(tokens) // 2
    first = context(name)
    first.decode(engine.Batch.from_tokens(tokens[:half]))
    second = context(name, n_ctx=512)
    second.state_seq_set_data(2, first.state_seq_get_data(0))
    second.decode(engine.Batch.from_tokens(tokens[half:], half, 2, "all"))
    return second.get_logits(), want[half:]
