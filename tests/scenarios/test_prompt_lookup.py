"""Guesses from the text so far: what followed the last tokens when they stood there before."""

from __future__ import annotations

import numpy as np

import engine
from tests.engine.oracle_cases import context, load_case, tokens_of
from tests.scenarios.support import Batch, best

N_GRAM, N_GUESS = 2, 4


def look_up(text: list[int]) -> list[int]:
    """What followed the newest earlier occurrence of the last N_GRAM tokens, or nothing."""
    for at in range(len(text) - N_GRAM - 1, -1, -1):
        if text[at : at + N_GRAM] == text[-N_GRAM:]:
            return text[at + N_GRAM : at + N_GRAM + N_GUESS]
    return []


def test_looked_up_guesses_save_decodes_and_change_no_token() -> None:
    case, _ = load_case("qwen2")  # its reply repeats itself
    prompt, wanted = tokens_of(case), [int(t) for t in np.array(case["greedy"])]
    ctx = context("qwen2")
    ctx.decode(Batch.from_tokens(prompt))
    text = [*prompt, best(ctx.get_logits_ith(-1))]
    n_decodes = 1
    while len(text) < len(prompt) + len(wanted):
        guesses = look_up(text)
        ctx.decode(Batch.from_tokens([text[-1], *guesses], None, logits="all"))
        n_decodes += 1
        for i, row in enumerate(ctx.get_logits()):
            text.append(best(row))
            if i < len(guesses) and guesses[i] != text[-1]:
                break
        assert engine.kv_self_seq_rm(ctx, 0, len(text) - 1, -1)
    assert text[len(prompt) :][: len(wanted)] == wanted
    assert n_decodes < len(wanted)
