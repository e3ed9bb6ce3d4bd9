"""Special tokens: which there are, when text is read as one, and what the field's families need."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.gguf import StringArray
from engine.tokenizer import TokenType
from engine.tokenizer.detokenizer import clean_up_spaces
from tests.engine.tokenizer.support import (
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    craft,
    craft_bpe,
    craft_spm,
    load,
)


def test_control_tokens_are_read_only_when_asked(tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf"))
    end = tokenizer.find_token("<|im_end|>")
    tool = tokenizer.find_token("<tool>")
    assert end is not None and tool is not None
    assert tokenizer.is_special(end) and not tokenizer.is_special(tool)
    plain = tokenizer.encode("a<|im_end|>b<tool>", add_special=False)
    assert end not in plain and plain[-1] == tool
    parsed = tokenizer.encode("a<|im_end|>b<tool>", add_special=False, parse_special=True)
    assert parsed == [ord("a"), end, ord("b"), tool]
    assert tokenizer.decode(parsed) == "a<|im_end|>b<tool>"
    assert tokenizer.decode(parsed, special=False) == "ab<tool>"
    assert tokenizer.token_to_piece(end) == b"<|im_end|>"
    assert tokenizer.token_to_piece(end, special=False) == b""


def test_the_longest_of_several_wins(tmp_path: Path) -> None:
    specials = ("<|a|>", "<|a|><|b|>", "<|b|>")
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", specials=specials))
    ids = tokenizer.encode("<|a|><|b|><|b|><|a|>", add_special=False, parse_special=True)
    assert [tokenizer.token_text(token) for token in ids] == ["<|a|><|b|>", "<|b|>", "<|a|>"]


def test_what_ends_a_generation(tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf"))
    ends = {tokenizer.token_text(token) for token in tokenizer.eog_token_ids}
    assert ends == {"<|endoftext|>", "<|im_end|>"}
    assert tokenizer.token_text(tokenizer.eot_token_id or 0) == "<|im_end|>"
    harmony = ("<|return|>", "<|call|>", "<|end|>", "<|start|>")
    tokenizer = load(craft_bpe(tmp_path / "harmony.gguf", specials=harmony))
    assert {tokenizer.token_text(token) for token in tokenizer.eog_token_ids} == {"<|return|>", "<|call|>"}


def test_a_control_token_that_the_file_calls_normal(tmp_path: Path) -> None:
    path = craft_bpe(tmp_path / "vocab.gguf", specials=(), user_defined=("<|im_end|>", "<tool>"), eos_token_id=None)
    tokenizer = load(path)
    end = tokenizer.find_token("<|im_end|>")
    assert end is not None
    assert tokenizer.token_type(end) is TokenType.CONTROL
    assert end not in tokenizer.encode("<|im_end|>")
    assert tokenizer.eog_token_ids == {end}


def test_html_tags_of_gemma_stay_text(tmp_path: Path) -> None:
    tokens = [("<pad>", 0.0, CONTROL), ("<eos>", 0.0, CONTROL), ("<bos>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
    gemma = [*tokens, ("</s>", -1.0, USER_DEFINED), ("a", -2.0, NORMAL)]
    tokenizer = load(craft_spm(tmp_path / "gemma.gguf", gemma, bos_token_id=2, eos_token_id=1, add_space_prefix=False))
    assert tokenizer.encode("a</s>", add_special=False) == [5, 4]
    assert tokenizer.eog_token_ids == {1}
    assert tokenizer.decode([5, 4], special=False) == "a</s>"


@pytest.mark.parametrize(
    ("flags", "ids"),
    [
        ({}, [97]),
        ({"add_bos_token": True}, [0, 97]),
        ({"add_eos_token": True}, [97, 1]),
        ({"add_bos_token": True, "add_eos_token": True}, [0, 97, 1]),
        ({"add_bos_token": False, "add_eos_token": False}, [97]),
    ],
)
def test_tokens_that_are_added(tmp_path: Path, flags: dict[str, bool], ids: list[int]) -> None:
    path = craft_bpe(tmp_path / "vocab.gguf", bos_token_id=0, **(flags | {"eos_token_id": 1}))  # type: ignore[arg-type]
    assert load(path).encode("a") == ids


def test_white_space_goes_with_phi3s_control_tokens(tmp_path: Path) -> None:
    tokens = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<|end|>", 0.0, CONTROL)]
    tokens += [("▁a", -1.0, NORMAL), ("▁", -2.0, NORMAL), ("a", -3.0, NORMAL)]
    values = {"bos_token_id": 1, "eos_token_id": 3}
    plain = load(craft_spm(tmp_path / "vocab.gguf", tokens, **values))
    assert plain.encode("<|end|> a", add_special=False, parse_special=True) == [3, 5, 4]
    named = {"general.name": "Phi-3 mini", "tokenizer.ggml.model": "llama"}
    named |= {f"tokenizer.ggml.{key}": value for key, value in values.items()}  # type: ignore[misc]
    arrays = {
        "tokenizer.ggml.tokens": StringArray.from_strings([text.encode() for text, _, _ in tokens]),
        "tokenizer.ggml.scores": np.array([score for _, score, _ in tokens], dtype=np.float32),
        "tokenizer.ggml.token_type": np.array([kind for _, _, kind in tokens], dtype=np.int32),
    }
    phi3 = load(craft(tmp_path / "phi3.gguf", {**named, **arrays}))
    assert phi3.encode("<|end|> \n a", add_special=False, parse_special=True) == [3, 4]
    assert phi3.cut_control("a <|end|> \n a") == [("a ", None), ("<|end|>", 3), ("a", None)]


def test_space_clean_up() -> None:
    assert clean_up_spaces("Well , it 's fine . Is n't it ? ' no ' I 've !") == "Well, it's fine. Is n't it?'no'I've!"
    assert clean_up_spaces(" .") == "."


def test_clean_up_is_for_whole_texts_where_asked(tmp_path: Path) -> None:
    for pre, text in (("llama-bpe", "a?"), ("qwen2", "a ?")):
        tokenizer = load(craft_bpe(tmp_path / f"{pre}.gguf", pre, add_bos_token=False))
        ids = tokenizer.encode("a ?", add_special=False)
        assert tokenizer.decode(ids) == text
        decoder = tokenizer.detokenizer()
        assert "".join(decoder.push(token) for token in ids) + decoder.flush() == "a ?"


def test_ids_outside_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf"))
    for token in (-1, tokenizer.n_vocab):
        with pytest.raises(IndexError):
            tokenizer.decode([0, token])
        for call in (tokenizer.token_to_piece, tokenizer.token_text, tokenizer.is_special, tokenizer.token_type):
            with pytest.raises(IndexError):
                call(token)
        with pytest.raises(IndexError):
            tokenizer.detokenizer().push(token)


def test_empty_texts(tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", add_bos_token=True, bos_token_id=0))
    assert tokenizer.encode("") == [0]
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.cut_control("") == []
    assert tokenizer.detokenizer().flush() == ""
