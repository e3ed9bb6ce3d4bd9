"""A reply that is interrupted, saved, and finished elsewhere is the reply that would have been."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from tests.engine.oracle_cases import context, load_case, tokens_of
from tests.scenarios.support import Batch, greedy


@pytest.mark.parametrize("name", ["llama", "gemma3", "falcon-h1", "mamba"])
def test_a_saved_reply_goes_on(name: str, tmp_path: Path) -> None:
    prompt = tokens_of(load_case(name)[0])
    wanted = greedy(context(name), prompt, 16)
    first = context(name)
    begun = greedy(first, prompt, 8)
    first.decode(Batch.from_tokens(begun[-1:], None))
    assert begun == wanted[:8]
    first.state_save_file(tmp_path / "all", prompt + begun)
    data = first.state_seq_get_data(0)
    assert len(data) == first.state_seq_get_size(0)
    following = int(first.get_logits_ith(-1).argmax())

    second = context(name)
    saved = second.state_load_file(tmp_path / "all")
    assert saved.tokens.tolist() == prompt + begun
    assert greedy(second, [following], 7) == wanted[9:]

    third = context(name, n_ctx=64, n_threads=1)
    third.decode(Batch.from_tokens(prompt[:5], seq_id=0))
    third.state_seq_set_data(3, data)
    assert greedy(third, [following], 7, seq_id=3) == wanted[9:]
    assert engine.kv_self_seq_pos_max(third, 0) == 4
