"""Texts that are slow for others: time stays near linear in their length."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from engine.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.engine.tokenizer.support import NORMAL, OWN_NAMES, UNKNOWN, craft_bpe, craft_spm, load, vocab_folder

N = 100_000
TEXTS = {
    "a": "a" * N,
    "spaces": " " * N,
    "spaces before a letter": " " * N + "日",
    "new lines": "\n" * N,
    "tabs and spaces": "\t " * (N // 2) + "x",
    "digits": "1" * N,
    "emoji": "👩‍👩‍👧" * (N // 18),
    "marks": "a" + "\u0301" * (N // 2),
    "case": "aA" * (N // 2),
    "han and capitals": "日" + "A" * N,
    "apostrophes": "'" * N,
    "control token starts": "<|" * (N // 2),
    "random letters": "".join(random.Random(1).choices("ab", k=N)),
    "nul": "\0" * N,
}
# Seconds of processor time for 100 kB: quadratic time would take minutes.
LIMIT_S = 1.0


@pytest.mark.parametrize(
    "name", ["llama-bpe", "deepseek-llm", "deepseek-v3", "gpt-4o", "exaone-moe", "bloom", "jais-2", *OWN_NAMES]
)
def test_time_is_bounded(name: str, tmp_path: Path) -> None:
    own = name in OWN_NAMES
    tokenizer = load(vocab_folder(name) / "vocab.gguf" if own else craft_bpe(tmp_path / "vocab.gguf", name))
    slow = {}
    for what, text in TEXTS.items():
        began = time.thread_time()
        ids = tokenizer.encode(text)
        tokenizer.decode(ids)
        took = time.thread_time() - began
        if took > LIMIT_S:
            slow[what] = took
    assert not slow


def test_every_pretokenizer_is_near_linear(tmp_path: Path) -> None:
    for i, (stages, name) in enumerate({rule.stages: name for name, rule in PRE_TOKENIZERS.items()}.items()):
        tokenizer = load(craft_bpe(tmp_path / f"{i}.gguf", name))
        for what, text in TEXTS.items():
            began = time.thread_time()
            tokenizer.encode(text[: N // 4])
            assert time.thread_time() - began < LIMIT_S / 2, (name, what, stages)


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "llama"])
def test_tokens_of_great_length_cost_little(model: str, tmp_path: Path) -> None:
    tokens = [("<unk>", 0.0, UNKNOWN), ("▁a", -1.0, NORMAL), ("a", -1.0, NORMAL), ("a" * 50_000 + "b", -1.0, NORMAL)]
    ids = {"unknown_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "seperator_token_id": 1}
    tokenizer = load(craft_spm(tmp_path / "vocab.gguf", tokens, **ids | {"model": model}))
    began = time.thread_time()
    tokenizer.encode("a" * N)
    assert time.thread_time() - began < LIMIT_S


def test_a_long_user_defined_token_is_not_looked_for(tmp_path: Path) -> None:
    """A token of many bytes that almost matches everywhere would cost its length at each place."""
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", user_defined=("a" * 50_000 + "b",)))
    began = time.thread_time()
    assert len(tokenizer.encode("a" * N, add_special=False)) == N // 4
    assert time.thread_time() - began < LIMIT_S
