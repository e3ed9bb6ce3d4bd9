"""An importance matrix: how strong each input of each product is over a text, collected while it is decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine.gguf import GGUFWriter
from engine.types import F32Array, F64Array, QuantType
from tests.engine.oracle_cases import DATA, context, nmse
from tests.scenarios.numpy_llama import NumpyLlama
from tests.scenarios.support import GREEDY, PROMPT, Batch, greedy


class Collector:
    """Sums of squares by weight.

    Attributes:
        sums: f64[n_in] by the weight's name.
        counts: rows summed up.
    """

    def __init__(self) -> None:
        self.sums: dict[str, F64Array] = {}
        self.counts: dict[str, int] = {}

    def observe(self, name: str, values: F32Array) -> None:
        """What a context calls for every node."""
        if name.endswith(".weight"):
            squares = (values.astype(np.float64) ** 2).sum(axis=0)
            self.sums[name] = self.sums.get(name, np.zeros_like(squares)) + squares
            self.counts[name] = self.counts.get(name, 0) + len(values)

    def write(self, path: Path) -> None:
        """As `llama-imatrix` does: two tensors for each weight."""
        writer = GGUFWriter(path, "llama")
        writer.add("general.type", "imatrix")
        for name, total in self.sums.items():
            writer.add_tensor(f"{name}.in_sum2", QuantType.F32, total.astype(np.float32))
            writer.add_tensor(f"{name}.counts", QuantType.F32, np.array([self.counts[name]], np.float32))
        writer.write()


@pytest.mark.parametrize("n_ubatch", [256, 7])
def test_the_matrix_is_that_of_float64_and_the_tokens_stay(n_ubatch: int, tmp_path: Path) -> None:
    twin = NumpyLlama(DATA / "llama" / "model.gguf")
    twin.decode(PROMPT)
    ctx, collector = context("llama", n_ubatch=n_ubatch), Collector()
    ctx.set_eval_callback(collector.observe)
    ctx.decode(Batch.from_tokens(PROMPT, logits="all"))
    assert set(collector.sums) == set(twin.inputs)
    assert all(count == len(PROMPT) for count in collector.counts.values())
    for name, inputs in twin.inputs.items():
        assert nmse(collector.sums[name].astype(np.float32), (inputs**2).sum(axis=0).astype(np.float32)) < 1e-10
    collector.write(tmp_path / "imatrix.gguf")
    assert engine.read_tensor(tmp_path / "imatrix.gguf", "output.weight.counts").tolist() == [24]
    ctx.get_kv_self().clear()
    assert greedy(ctx, PROMPT, len(GREEDY)) == GREEDY
    assert collector.counts["blk.0.attn_q.weight"] == 2 * len(PROMPT) + len(GREEDY) - 1
