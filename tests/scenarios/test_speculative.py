"""A draft model guesses, the target checks many guesses in one batch; the text is the target's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import engine
from tests.engine.oracle_cases import context
from tests.scenarios.support import GREEDY, PROMPT, Batch, best

N_DRAFT, N_PREDICT = 4, len(GREEDY)


def draft_context(**more: object) -> engine.Context:
    """The target with a push in another direction: right often, not always."""
    direction = np.random.default_rng(8).standard_normal(64, dtype=np.float32)
    vector = engine.ControlVector(Path("push"), "push", {1: direction})
    ctx = context("llama", **more)
    ctx.apply_adapter_cvec(vector, 0.3)
    return ctx


def test_a_draft_is_taken_back_by_seq_rm() -> None:
    target, draft = context("llama"), draft_context()
    target.decode(Batch.from_tokens(PROMPT))
    draft.decode(Batch.from_tokens(PROMPT[:-1]))
    made = [best(target.get_logits_ith(-1))]
    behind = [PROMPT[-1], made[0]]  # what the draft has not read
    n_drafted = n_accepted = n_decodes = 0
    while len(made) < N_PREDICT:
        guesses: list[int] = []
        for _ in range(min(N_DRAFT, N_PREDICT - len(made))):
            draft.decode(Batch.from_tokens(behind or guesses[-1:], None))
            behind = []
            guesses.append(best(draft.get_logits_ith(-1)))
        target.decode(Batch.from_tokens([made[-1], *guesses], None, logits="all"))
        n_decodes += 1
        right = [best(row) for row in target.get_logits()]
        n_same = next((i for i, guess in enumerate(guesses) if guess != right[i]), len(guesses))
        made += right[: n_same + 1]
        n_drafted, n_accepted = n_drafted + len(guesses), n_accepted + n_same
        n_past = len(PROMPT) + len(made) - 1
        assert engine.kv_self_seq_rm(target, 0, n_past, -1)
        assert engine.kv_self_seq_rm(draft, 0, n_past, -1)
        behind = made[engine.kv_self_seq_pos_max(draft, 0) + 1 - len(PROMPT) :]
    assert made[:N_PREDICT] == GREEDY
    assert 0 < n_accepted < n_drafted and n_decodes < N_PREDICT - 1


def test_a_tree_of_drafts_keeps_the_best_branch() -> None:
    """Two branches split at the draft's first token; one batch checks both, `seq_keep` drops the other."""
    target, draft = context("llama"), draft_context(n_seq_max=2)
    for ctx in (target, draft):
        ctx.decode(Batch.from_tokens(PROMPT))
    made = [best(target.get_logits_ith(-1))]
    taken_from: set[int] = set()
    while len(made) < N_PREDICT:
        draft.decode(Batch.from_tokens(made[-1:], None))
        second, first = np.argsort(draft.get_logits_ith(-1))[-2:]
        branches = [[int(first)], [int(second)]]
        engine.kv_self_seq_cp(draft, 0, 1, -1, -1)
        for _ in range(N_DRAFT - 1):
            draft.decode(Batch.join([Batch.from_tokens(b[-1:], None, s) for s, b in enumerate(branches)]))
            for branch, row in zip(branches, draft.get_logits(), strict=True):
                branch.append(best(row))
        engine.kv_self_seq_cp(target, 0, 1, -1, -1)
        root = Batch.from_tokens(made[-1:], None, (0, 1))
        target.decode(Batch.join([root, *(Batch.from_tokens(b, None, s, "all") for s, b in enumerate(branches))]))
        right = [best(row) for row in target.get_logits()]
        runs = []
        for s, branch in enumerate(branches):
            answers = [right[0], *right[1 + s * N_DRAFT : 1 + (s + 1) * N_DRAFT]]
            n_same = next((i for i, guess in enumerate(branch) if guess != answers[i]), N_DRAFT)
            runs.append(answers[: n_same + 1])
        keep = max(range(2), key=lambda s: len(runs[s]))
        made += runs[keep]
        taken_from.add(keep if len(runs[0]) != len(runs[1]) else -1)
        n_past = len(PROMPT) + len(made) - 1
        for ctx in (target, draft):
            engine.kv_self_seq_keep(ctx, keep)
            engine.kv_self_seq_cp(ctx, keep, 0, -1, -1)
            engine.kv_self_seq_rm(ctx, 1, -1, -1)
            assert engine.kv_self_seq_rm(ctx, 0, min(n_past, engine.kv_self_seq_pos_max(ctx, 0) + 1), -1)
        missing = made[engine.kv_self_seq_pos_max(draft, 0) + 1 - len(PROMPT) : -1]
        if missing:
            draft.decode(Batch.from_tokens(missing, None))
    assert made[:N_PREDICT] == GREEDY
    assert {0, 1} <= taken_from
    assert engine.kv_self_used_cells(target) == engine.kv_self_n_tokens(target) == len(PROMPT) + len(made) - 1
