"""The tiny models under tests/data with their right answers: loaded once, compared by NMSE."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

import engine
from engine.types import F32Array

DATA = Path(__file__).resolve().parent.parent / "data"


def load_case(name: str) -> tuple[dict[str, object], F32Array]:
    """case.json and the expected logits f32[n_tokens, n_vocab]."""
    folder = DATA / name
    return json.loads((folder / "case.json").read_text()), np.load(folder / "expected.npy")


@cache
def model(name: str) -> engine.Model:
    """The case's model, opened once for all tests."""
    return engine.load_model(DATA / name / "model.gguf", n_threads=2)


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
