"""Lookahead decoding: many sequences guess further tokens by Jacobi iteration, others check n-grams found earlier.

Source: arXiv:2402.02057. One batch holds the current token (shared by all), G n-grams to check and a window of W columns.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import engine
from tests.engine.oracle_cases import context, load_case, tokens_of
from tests.scenarios.support import Batch, best

W, N, G = 4, 4, 3  # columns of the window, length of an n-gram, n-grams checked at once
N_SEQ = 1 + W + G


def test_lookahead_gives_the_tokens_of_plain_decoding() -> None:
    case, _ = load_case("qwen2")
    prompt, wanted = tokens_of(case), [int(t) for t in np.array(case["greedy"])]
    ctx = context("qwen2", n_seq_max=N_SEQ)
    ctx.decode(Batch.from_tokens(prompt, seq_id=tuple(range(N_SEQ))))
    made = [best(ctx.get_logits_ith(-1))]
    window = [[prompt[(level + 2 * i) % len(prompt)] for i in range(W)] for level in range(N - 1)]
    pool: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
    n_decodes = 0
    while len(made) < len(wanted):
        grams = pool[made[-1]][-G:]
        parts = [Batch.from_tokens(made[-1:], None, tuple(range(N_SEQ)))]
        parts += [Batch.from_tokens(gram, None, 1 + W + g, "all") for g, gram in enumerate(grams)]
        # Column i reads the first level up to itself, then its own tokens of the higher levels.
        for i in range(W):
            column = [level[i] for level in window[1:]]
            parts.append(Batch.from_tokens([*window[0][: i + 1], *column], None, 1 + i))
        ctx.decode(Batch.join(parts))
        n_decodes += 1
        rows = [best(row) for row in ctx.get_logits()]
        runs = [rows[:1]]
        for g, gram in enumerate(grams):
            answers = [rows[0], *rows[1 + g * (N - 1) : 1 + (g + 1) * (N - 1)]]
            n_same = next((j for j, guess in enumerate(gram) if guess != answers[j]), len(gram))
            runs.append(answers[: n_same + 1])
        keep = max(range(len(runs)), key=lambda r: len(runs[r]))
        fresh = rows[1 + len(grams) * (N - 1) :]
        for i in range(W):
            gram = (*(level[i] for level in window[1:]), fresh[i])
            if gram not in pool[window[0][i]]:
                pool[window[0][i]].append(gram)
        window = [*window[1:], fresh]
        made += runs[keep]
        engine.kv_self_seq_keep(ctx, W + keep if keep else 0)
        engine.kv_self_seq_cp(ctx, W + keep if keep else 0, 0, -1, -1)
        engine.kv_self_seq_keep(ctx, 0)
        assert engine.kv_self_seq_rm(ctx, 0, len(prompt) + len(made) - 1, -1)
        for s in range(1, N_SEQ):
            engine.kv_self_seq_cp(ctx, 0, s, -1, -1)
        assert engine.kv_self_used_cells(ctx) == len(prompt) + len(made) - 1
    assert made[: len(wanted)] == wanted
    assert n_decodes < len(wanted) - 1
