"""Prompt and generation speed with growing numbers of sequences; every sequence gets the tokens of a lone one."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

import engine
from tests.engine.oracle_cases import context
from tests.scenarios.support import GREEDY, PROMPT, Batch, best


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One line of the table: sequences, tokens a second of prompt and of generation, cells at the end, the tokens."""

    n_parallel: int
    pp_tok_s: float
    tg_tok_s: float
    n_cells: int
    tokens: list[list[int]]


def bench(ctx: engine.Context, n_parallel: int, n_predict: int, *, shares_prompt: bool) -> BenchRow:
    """Decode the prompt for all sequences (once, where it is shared), then a token of each at a time."""
    ctx.get_kv_self().clear()
    began = time.perf_counter()
    if shares_prompt:
        ctx.decode(Batch.from_tokens(PROMPT, seq_id=tuple(range(n_parallel))))
        made = [[best(ctx.get_logits_ith(-1))] for _ in range(n_parallel)]
    else:
        ctx.decode(Batch.join([Batch.from_tokens(PROMPT, seq_id=s) for s in range(n_parallel)]))
        made = [[best(row)] for row in ctx.get_logits()]
    prompt_done = time.perf_counter()
    for _ in range(n_predict - 1):
        ctx.decode(Batch.join([Batch.from_tokens(tokens[-1:], None, s) for s, tokens in enumerate(made)]))
        for tokens, row in zip(made, ctx.get_logits(), strict=True):
            tokens.append(best(row))
    done = time.perf_counter()
    n_prompt = len(PROMPT) * (1 if shares_prompt else n_parallel)
    return BenchRow(
        n_parallel,
        n_prompt / (prompt_done - began),
        n_parallel * (n_predict - 1) / (done - prompt_done),
        engine.kv_self_used_cells(ctx),
        made,
    )


@pytest.mark.parametrize("shares_prompt", [True, False])
def test_speed_is_measured_on_the_right_tokens(shares_prompt: bool) -> None:
    ctx = context("llama", n_seq_max=8)
    for n_parallel in (1, 2, 4, 8):
        row = bench(ctx, n_parallel, len(GREEDY), shares_prompt=shares_prompt)
        assert row.tokens == [GREEDY] * n_parallel
        assert row.pp_tok_s > 0 and row.tg_tok_s > 0
        n_prompt = len(PROMPT) * (1 if shares_prompt else n_parallel)
        assert row.n_cells == n_prompt + n_parallel * (len(GREEDY) - 1)
