"""What the scenarios share: the tiny llama with its right answers, and plain greedy decoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import engine
from engine.types import F32Array
from tests.engine.oracle_cases import load_case, tokens_of

Batch = engine.Batch
CASE, EXPECTED = load_case("llama")
PROMPT = tokens_of(CASE)
GREEDY = [int(token) for token in np.array(CASE["greedy"])]
"""The 16 tokens that follow PROMPT, from transformers."""


def best(logits: F32Array) -> int:
    """The likeliest token."""
    return int(logits.argmax())


def greedy(ctx: engine.Context, tokens: Sequence[int], n: int, seq_id: int = 0) -> list[int]:
    """Append tokens to a sequence, then the n likeliest ones, and answer these."""
    ctx.decode(Batch.from_tokens(tokens, None, seq_id))
    made = [best(ctx.get_logits_ith(-1))]
    while len(made) < n:
        ctx.decode(Batch.from_tokens(made[-1:], None, seq_id))
        made.append(best(ctx.get_logits_ith(-1)))
    return made
