"""Vocabularies that are damaged or hostile give an error that says where, and never a crash."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from engine.errors import HparamError, ModelFileError, UnsupportedModelError, UnsupportedTokenizerError
from engine.gguf import StringArray, open_gguf
from tests.engine.tokenizer.support import (
    BYTE,
    CONTROL,
    MERGES,
    NORMAL,
    OWN_NAMES,
    UNKNOWN,
    craft,
    craft_bpe,
    craft_spm,
    load,
    vocab_folder,
)  # fmt: skip

SPM = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
    ("<0x41>", 0.0, BYTE),
    ("▁a", -1.0, NORMAL),
]


def strings(*texts: str) -> StringArray:
    return StringArray.from_strings([text.encode() for text in texts])


def with_merge(tmp_path: Path, merge: str) -> Path:
    """A vocabulary with one more merge than its tokens say."""
    good = craft_bpe(tmp_path / "good.gguf")
    with open_gguf(good) as gguf:
        values = {key: value for key, value in gguf.metadata.items() if key.startswith("tokenizer.")}
        values["tokenizer.ggml.merges"] = strings(*MERGES, merge)
        return craft(tmp_path / "bad.gguf", values)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokens": None}, "tokens: is missing"),
        ({"tokens": strings()}, "0 tokens"),
        ({"tokens": 7}, "an array of strings expected"),
        ({"token_type": np.ones(5, dtype=np.int32)}, r"5 types for \d+ tokens"),
        ({"token_type": np.full(280, 9, dtype=np.int32)}, "token 0 has type 9"),
        ({"token_type": np.full(280, -1, dtype=np.int32)}, "token 0 has type -1"),
        ({"merges": None}, "merges: is missing"),
        ({"bos_token_id": 100_000}, "bos_token_id: 100,000 is no token of"),
        ({"eos_token_id": -5}, "eos_token_id"),
        ({"eot_token_id": "x"}, "an integer expected"),
        ({"add_bos_token": True}, "add_bos_token: is true, but there is no bos token"),
        ({"add_bos_token": 1}, "a bool expected"),
    ],
)
def test_bpe(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(HparamError, match=said):
        load(craft_bpe(tmp_path / "vocab.gguf", **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("merge", ["nospace", "", " ", "x qqq", "qqq x", "a b", "a ", "\u4e00 a", "é é é"])
def test_bpe_merges_that_join_no_tokens(tmp_path: Path, merge: str) -> None:
    with pytest.raises(HparamError, match=r"merges: merge 20 .* does not join tokens"):
        load(with_merge(tmp_path, merge))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scores": None}, "scores: is missing"),
        ({"scores": np.zeros(3, dtype=np.float32)}, "3 scores for 5 tokens"),
        ({"scores": np.full(5, np.nan, dtype=np.float32)}, "the score of token 0 is not a number"),
        ({"scores": "x"}, "an array of numbers expected"),
        ({"token_type": np.ones(4, dtype=np.int32)}, "4 types for 5 tokens"),
        ({"bos_token_id": 5}, "bos_token_id: 5 is no token of 5"),
        ({"unknown_token_id": 99}, "unknown_token_id: 99 is no token of 5"),
        ({"add_space_prefix": "yes"}, "a bool expected"),
    ],
)
def test_spm(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(HparamError, match=said):
        load(craft_spm(tmp_path / "vocab.gguf", SPM, **changes))


@pytest.mark.parametrize("name", ["", "of-tomorrow"])
def test_an_unknown_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedTokenizerError, match=f"model '{name}'"):
        load(craft_bpe(tmp_path / "vocab.gguf", model=name))


def test_no_model_at_all(tmp_path: Path) -> None:
    with pytest.raises(HparamError, match=r"tokenizer\.ggml\.model: is missing"):
        load(craft(tmp_path / "vocab.gguf", {}))


def test_there_is_none_is_no_error(tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", bos_token_id=2**32 - 1, padding_token_id=-1))
    assert tokenizer.bos_token_id is None
    assert tokenizer.special.pad is None


def test_a_vocabulary_without_most_bytes(tmp_path: Path) -> None:
    """What no token stands for leaves no trace, as in the field; nothing breaks."""
    path = craft(
        tmp_path / "vocab.gguf",
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": strings("a", "b", "ab", "<|im_end|>"),
            "tokenizer.ggml.merges": strings("a b"),
        },
    )
    tokenizer = load(path)
    assert tokenizer.encode("cab abc\nb", add_special=False) == [2, 2, 1]
    assert tokenizer.eog_token_ids == {3}


def test_spm_without_bytes_gives_the_unknown_token(tmp_path: Path) -> None:
    tokenizer = load(craft_spm(tmp_path / "vocab.gguf", SPM))
    assert tokenizer.encode("a", add_special=False) == [4]
    assert tokenizer.encode("aAé", add_special=False) == [4, 3, 0]


def test_the_same_text_twice_and_empty_texts(tmp_path: Path) -> None:
    tokenizer = load(
        craft_spm(tmp_path / "vocab.gguf", [*SPM, ("▁a", -2.0, NORMAL), ("", 0.0, NORMAL), ("", 0.0, CONTROL)])
    )
    assert tokenizer.encode("a", add_special=False) == [5]
    assert tokenizer.decode(range(tokenizer.n_vocab))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_vocabularies(tmp_path: Path, seed: int) -> None:
    """Flipped bytes in real files: an error of the right kind, or a tokenizer that works."""
    rng = random.Random(seed)
    paths = [vocab_folder(name) / "vocab.gguf" for name in OWN_NAMES] + [craft_bpe(tmp_path / "bpe.gguf", "llama-bpe")]
    for path in paths:
        good = path.read_bytes()
        for _ in range(25):
            data = bytearray(good)
            for _ in range(rng.choice((1, 1, 4, 40))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            (tmp_path / "bad.gguf").write_bytes(data)
            try:
                tokenizer = load(tmp_path / "bad.gguf")
            except (ModelFileError, UnsupportedModelError) as error:
                assert str(error)
                continue
            for text in ("Hello, world! 日本 <s> \0 12", "a" * 300, "\n\n  \t"):
                ids = tokenizer.encode(text, parse_special=True)
                assert all(0 <= token < tokenizer.n_vocab for token in ids)
                tokenizer.decode(ids)
            tokenizer.decode(range(tokenizer.n_vocab))
