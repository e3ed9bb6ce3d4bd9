"""A gap between two pieces of code is filled: prefix, suffix, middle."""

from __future__ import annotations

import pytest

import engine
from engine.tokenizer import Tokenizer
from tests.engine.oracle_cases import nmse
from tests.models import QWEN2, real_model
from tests.scenarios.support import greedy

PREFIX, SUFFIX = "def add(a, b):\n    return a", "\n"


def fill_prompt(tokenizer: Tokenizer, prefix: str, suffix: str) -> list[int]:
    """The prompt that asks for what stands between prefix and suffix."""
    special = tokenizer.special
    assert special.fim_prefix is not None and special.fim_suffix is not None and special.fim_middle is not None
    before, after = (tokenizer.encode(text, add_special=False) for text in (prefix, suffix))
    return [special.fim_prefix, *before, special.fim_suffix, *after, special.fim_middle]


@pytest.mark.real
def test_the_gap_between_two_pieces_of_code_is_filled() -> None:
    with engine.load_model(real_model(QWEN2), n_threads=2) as model:
        tokenizer = model.tokenizer
        prompt = fill_prompt(tokenizer, PREFIX, SUFFIX)
        assert tokenizer.decode(prompt) == f"<|fim_prefix|>{PREFIX}<|fim_suffix|>{SUFFIX}<|fim_middle|>"
        ctx = engine.create_context(model, engine.ContextParams(n_ctx=128, n_threads=2))
        assert tokenizer.decode(greedy(ctx, prompt, 2)) == " + b"
        with_suffix = ctx.get_logits_ith(-1).copy()
        ctx.get_kv_self().clear()
        greedy(ctx, fill_prompt(tokenizer, PREFIX, ""), 2)
        assert nmse(ctx.get_logits_ith(-1), with_suffix) > 1e-3  # what stands behind the gap is read, too
        ctx.close()
