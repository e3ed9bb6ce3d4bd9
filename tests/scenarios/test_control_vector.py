"""A control vector from pairs of prompts: the mean difference of the hidden rows, written, loaded and applied."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import engine
from engine.gguf import GGUFWriter
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import DATA, context, model, nmse
from tests.scenarios.numpy_llama import NumpyLlama
from tests.scenarios.support import GREEDY, PROMPT, Batch, greedy

N_LAYER = 3
PAIRS = [
    ([*PROMPT[:6], more, 40 + i], [*PROMPT[:6], less, 40 + i]) for i, (more, less) in enumerate([(7, 300), (9, 310)])
]


def hidden_rows(ctx: engine.Context, tokens: list[int]) -> dict[int, F32Array]:
    """The last token's row behind each layer from the second on: f32[n_embd]."""
    rows: dict[int, F32Array] = {}

    def observe(name: str, values: F32Array) -> None:
        node, _, il = name.rpartition("-")
        if node == "l_out" and int(il) > 0:
            rows[int(il)] = values[-1]

    ctx.get_kv_self().clear()
    ctx.set_eval_callback(observe)
    ctx.decode(Batch.from_tokens(tokens))
    ctx.set_eval_callback(None)
    return rows


def extract(ctx: engine.Context, path: Path) -> dict[int, F32Array]:
    """The directions, of length 1, and a file of them."""
    pairs = [(hidden_rows(ctx, positive), hidden_rows(ctx, negative)) for positive, negative in PAIRS]
    directions = {}
    writer = GGUFWriter(path, "controlvector")
    for il in range(1, N_LAYER):
        mean = np.mean([positive[il] - negative[il] for positive, negative in pairs], axis=0)
        directions[il] = (mean / np.linalg.norm(mean)).astype(np.float32)
        writer.add_tensor(f"direction.{il}", QuantType.F32, directions[il])
    writer.write()
    return directions


def test_the_extracted_vector_changes_the_tokens_as_float64_says(tmp_path: Path) -> None:
    ctx = context("llama")
    directions = extract(ctx, tmp_path / "v.gguf")
    twin = NumpyLlama(DATA / "llama" / "model.gguf")
    for il in directions:
        differences = []
        for pair in PAIRS:
            rows = []
            for tokens in pair:
                twin.clear()
                twin.decode(tokens)
                rows.append(twin.l_out[il][-1])
            differences.append(rows[0] - rows[1])
        mean = np.mean(differences, axis=0)
        assert nmse(directions[il], (mean / np.linalg.norm(mean)).astype(np.float32)) < 1e-9
    vector = engine.load_control_vector(model("llama"), tmp_path / "v.gguf")
    for scale, first, last in ((6.0, -1, -1), (-6.0, 1, 1), (6.0, 2, 2)):
        ctx.get_kv_self().clear()
        ctx.apply_adapter_cvec(vector, scale, first, last)
        made = greedy(ctx, PROMPT, 12)
        twin.clear()
        added = {il: scale * d.astype(np.float64) for il, d in directions.items() if first < 0 or first <= il <= last}
        assert made == twin.greedy(PROMPT, 12, added) != GREEDY[:12]
    ctx.get_kv_self().clear()
    ctx.apply_adapter_cvec(None)
    assert greedy(ctx, PROMPT, len(GREEDY)) == GREEDY
