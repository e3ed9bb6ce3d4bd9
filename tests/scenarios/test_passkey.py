"""A long prompt in few positions (self-extend): each part is decoded, then its positions are divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import engine
from tests.engine.oracle_cases import DATA, context, nmse
from tests.models import SMOLLM2, real_model
from tests.scenarios.numpy_llama import NumpyLlama
from tests.scenarios.support import Batch, best

Move = Callable[[int, int, int], None]
"""move(p0, p1, n): add n to the positions in [p0, p1), or divide them by n."""


def self_extend(
    parts: Sequence[Sequence[int]], n_group: int, decode: Callable[[Sequence[int]], None], add: Move, div: Move
) -> None:
    """Decode parts of equal length; afterwards n_group neighbours share a position.

    Source: arXiv:2401.01325 (floor division of positions), with neighbours of full resolution in the part that is read.
    """
    n_part = len(parts[0])
    n_divided = n_part // n_group
    for i, part in enumerate(parts):
        decode(part)
        n_past = i * n_divided
        add(n_past, n_past + n_part, i * (n_part - n_divided))
        div(i * n_part, (i + 1) * n_part, n_group)


@pytest.mark.parametrize("n_group", [2, 4])
def test_grouped_positions_give_the_tokens_that_float64_gives(n_group: int) -> None:
    rng = np.random.default_rng(3)
    parts = [[int(t) for t in rng.integers(3, 500, 16)] for _ in range(6)]
    ctx, twin = context("llama"), NumpyLlama(DATA / "llama" / "model.gguf")

    def decode(part: Sequence[int]) -> None:
        ctx.decode(Batch.from_tokens(part, None))
        first = twin.pos[-1] + 1 if twin.pos else 0
        want = twin.decode(part, range(first, first + len(part)))
        assert nmse(ctx.get_logits_ith(-1), want[-1].astype(np.float32)) < 1e-9

    def add(p0: int, p1: int, delta: int) -> None:
        engine.kv_self_seq_add(ctx, 0, p0, p1, delta)
        twin.pos = [p + delta if p0 <= p < p1 else p for p in twin.pos]

    def div(p0: int, p1: int, divisor: int) -> None:
        engine.kv_self_seq_div(ctx, 0, p0, p1, divisor)
        twin.pos = [p // divisor if p0 <= p < p1 else p for p in twin.pos]

    self_extend(parts, n_group, decode, add, div)
    assert engine.kv_self_seq_pos_max(ctx, 0) == twin.pos[-1] == 96 // n_group - 1
    assert engine.kv_self_used_cells(ctx) == 96
    view = engine.kv_self_view(ctx).seqs[0][0]
    assert view.pos.tolist() == twin.pos
    tokens, wanted = [7], [7]
    for _ in range(12):
        ctx.decode(Batch.from_tokens(tokens[-1:], None))
        tokens.append(best(ctx.get_logits_ith(-1)))
        wanted.append(int(twin.decode(wanted[-1:], [twin.pos[-1] + 1])[-1].argmax()))
    assert tokens == wanted


@pytest.mark.real
def test_the_passkey_is_found_in_half_the_positions() -> None:
    filler = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
    key = "The pass key is 71432. Remember it. 71432 is the pass key. "
    with engine.load_model(real_model(SMOLLM2), n_threads=2) as model:
        ids = model.tokenizer.encode(filler * 6 + key + filler * 6)
        question = model.tokenizer.encode("What is the pass key? The pass key is", add_special=False)
        n_part = 64
        ids = ids[: len(ids) // n_part * n_part]
        ctx = engine.create_context(model, engine.ContextParams(n_ctx=512, n_threads=2))
        self_extend(
            [ids[at : at + n_part] for at in range(0, len(ids), n_part)],
            2,
            lambda part: ctx.decode(Batch.from_tokens(part, None)) and None,
            lambda p0, p1, delta: engine.kv_self_seq_add(ctx, 0, p0, p1, delta),
            lambda p0, p1, divisor: engine.kv_self_seq_div(ctx, 0, p0, p1, divisor),
        )
        assert engine.kv_self_seq_pos_max(ctx, 0) == len(ids) // 2 - 1
        reply: list[int] = []
        ctx.decode(Batch.from_tokens(question, None))
        while len(reply) < 8:
            reply.append(best(ctx.get_logits_ith(-1)))
            ctx.decode(Batch.from_tokens(reply[-1:], None))
        assert model.tokenizer.decode(reply).strip().startswith("71432")
        ctx.close()
