"""What holds for any text: decoding gives it back, and decoding token by token gives the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.tokenizer import Tokenizer
from tests.engine.tokenizer.support import OWN_NAMES, craft_bpe, load, vocab_folder

BITS = [
    "hello world",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "é",
    "🦙",
    "👩‍👩‍👧",
    "日本",
    "'s",
    "'LL",
    "123",
    "<|im_end|>",
    "<tool>",
    "▁",
    "a",
]
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(BITS), max_size=12).map("".join),
    st.lists(st.one_of(st.sampled_from(BITS), st.text(max_size=3)), max_size=8).map("".join),
).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
PRE_NAMES = (
    "gpt-2",
    "llama-bpe",
    "qwen2",
    "qwen35",
    "smollm",
    "deepseek-v3",
    "deepseek-llm",
    "gpt-4o",
    "tekken",
    "bloom",
)
MODELS = [*PRE_NAMES, *OWN_NAMES]

Loader = Callable[[str], Tokenizer]


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    folder: Path = tmp_path_factory.mktemp("vocabularies")
    made: dict[str, Tokenizer] = {}

    def make(name: str) -> Tokenizer:
        if name not in made:
            own = name in OWN_NAMES
            made[name] = load(vocab_folder(name) / "vocab.gguf" if own else craft_bpe(folder / f"{name}.gguf", name))
        return made[name]

    return make


@pytest.mark.parametrize("name", [*PRE_NAMES, "tiny-spm", "tiny-spm-noprefix"])
@given(text=TEXTS, parse_special=st.booleans())
@settings(max_examples=60, deadline=None)
def test_decode_gives_the_text_back(loader: Loader, name: str, text: str, parse_special: bool) -> None:
    tokenizer = loader(name)
    # SentencePiece writes U+2581 for a space, and takes spaces in front of a text's first word.
    if name.startswith("tiny"):
        text = text.replace("▁", "_")
        parse_special = False
    ids = tokenizer.encode(text, add_special=False, parse_special=parse_special)
    assert all(0 <= token < tokenizer.n_vocab for token in ids)
    assert tokenizer.decode(ids, clean_spaces=False) == text


@pytest.mark.parametrize("name", MODELS)
@given(data=st.data(), special=st.booleans())
@settings(max_examples=60, deadline=None)
def test_token_by_token_gives_the_same(loader: Loader, name: str, data: st.DataObject, special: bool) -> None:
    tokenizer = loader(name)
    ids = data.draw(st.lists(st.integers(0, tokenizer.n_vocab - 1), max_size=30))
    decoder = tokenizer.detokenizer(special=special)
    text = "".join([decoder.push(token) for token in ids]) + decoder.flush()
    assert text == tokenizer.decode(ids, special=special, clean_spaces=False)


@pytest.mark.parametrize("name", MODELS)
@given(text=TEXTS)
@settings(max_examples=30, deadline=None)
def test_any_text_gives_tokens_of_the_vocabulary(loader: Loader, name: str, text: str) -> None:
    tokenizer = loader(name)
    for parse_special in (False, True):
        ids = tokenizer.encode(text, parse_special=parse_special)
        assert all(0 <= token < tokenizer.n_vocab for token in ids)
        assert isinstance(tokenizer.decode(ids), str)


@pytest.mark.parametrize("name", MODELS)
def test_lone_surrogates_are_replaced(loader: Loader, name: str) -> None:
    tokenizer = loader(name)
    for text in ("\ud800", "a\udfffb", "\udc00\ud800", "x\ud83e"):
        replaced = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert tokenizer.encode(text) == tokenizer.encode(replaced)
    # Two halves that belong together are the character.
    assert tokenizer.encode("\ud83e\udd99") == tokenizer.encode("🦙")


def test_detokenizer_waits_for_whole_characters(loader: Loader) -> None:
    tokenizer = loader("gpt-2")
    ids = tokenizer.encode("🦙!", add_special=False)
    decoder = tokenizer.detokenizer()
    pushed = [decoder.push(token) for token in ids]
    assert [text for text in pushed if text] == ["🦙", "!"]
    assert decoder.flush() == ""
    decoder = tokenizer.detokenizer()
    assert decoder.push(ids[0]) == ""
    assert decoder.flush() == "\ufffd"


def test_a_leading_space_belongs_to_a_continuation(loader: Loader) -> None:
    tokenizer = loader("tiny-spm")
    ids = tokenizer.encode("and", add_special=False)
    text = {}
    for is_continuation in (False, True):
        decoder = tokenizer.detokenizer(is_continuation=is_continuation)
        text[is_continuation] = "".join(decoder.push(token) for token in ids) + decoder.flush()
    assert text == {False: "and", True: " and"}
