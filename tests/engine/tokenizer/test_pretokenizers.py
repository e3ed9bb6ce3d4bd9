"""The compiled splitter gives what the `regex` package gives for the same patterns."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from cext.bpe import BpeCore
from engine.errors import UnsupportedTokenizerError
from engine.gguf import StringArray
from engine.tokenizer.pretokenizers import PRE_TOKENIZERS, SPACE_MARK_PRE_TOKENIZERS
from tests.engine.tokenizer.support import craft_bpe, load

STAGES = {rule.stages: name for name, rule in {**PRE_TOKENIZERS, **SPACE_MARK_PRE_TOKENIZERS}.items()}

SAMPLES = [
    "a", "Z", "É", "ß", "ǅ", "ʰ", "日", "本", "が", "가", "ㅏ", "ㄅ", "\u0301", "\u093e", "ि", "٣", "Ⅳ", "½", "7", "123", "'", "'s",
    "'LL", "'Ve", "’", "!", "…", "。", "$", "+", "`", "~", "|", "(", "/", "-", "_", " ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u3000",
    "\u2028", "\u0085", "\x0b", "\x1c", "\0", "🦙", "\u200d", "\ufe0f", "\ue000", "ſ", "K", "hello", "World", "XMLHttp",
]  # fmt: skip
TEXTS = (
    st.lists(st.one_of(st.sampled_from(SAMPLES), st.text(max_size=2)), max_size=20)
    .map("".join)
    .filter(
        # Both sides must know the same characters: those that were assigned by Unicode 14, Python 3.11's version.
        lambda text: all(unicodedata.category(c) not in ("Cn", "Cs") for c in text)
    )
)


def reference(stages: tuple[str, ...], text: str) -> list[str]:
    """Split a text stage by stage; between matches stand pieces, too."""
    pieces = [text]
    for stage in stages:
        # The package's \s holds the separators U+001C..1F, which White_Space does not.
        pattern = regex.compile(stage.replace(r"\s", r"\p{White_Space}").replace(r"\S", r"\P{White_Space}"), regex.V1)
        split = []
        for piece in pieces:
            at = 0
            for match in pattern.finditer(piece):
                split += [piece[at : match.start()], match[0]]
                at = match.end()
            split.append(piece[at:])
        pieces = [piece for piece in split if piece]
    return pieces


def core_of(stages: tuple[str, ...]) -> BpeCore:
    texts = StringArray.from_strings([b"a"])
    patterns = StringArray.from_strings([stage.encode() for stage in stages])
    types = np.ones(1, dtype=np.uint8)
    return BpeCore(texts, types, None, StringArray.from_strings([]), patterns, byte_level=True)


@pytest.mark.parametrize("stages", list(STAGES), ids=list(STAGES.values()))
def test_splits_as_regex_does(stages: tuple[str, ...]) -> None:
    core = core_of(stages)

    @given(text=TEXTS)
    @settings(max_examples=80, deadline=None)
    def check(text: str) -> None:
        assert [word.decode() for word in core.split(text.encode())] == reference(stages, text)

    check()


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_every_name_loads(name: str, tmp_path: Path) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", name))
    assert tokenizer.decode(tokenizer.encode("hello world 12", add_special=False)) == "hello world 12"


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTokenizerError, match="gpt2 with pre-tokenizer 'of-tomorrow'"):
        load(craft_bpe(tmp_path / "vocab.gguf", "of-tomorrow"))


def test_a_missing_name_is_the_default_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = load(craft_bpe(tmp_path / "vocab.gguf", None))
    assert "tokenizer.ggml.pre is missing" in caplog.text
    assert tokenizer.encode("hello!", add_special=False) == load(craft_bpe(tmp_path / "other.gguf", "default")).encode(
        "hello!", add_special=False
    )


@pytest.mark.parametrize(
    "pattern",
    ["[", "(", "(?P<a>b)", "a**", "*a", "a{3,1}", "[b-a]", r"\p{Han}", r"\w", r"[\Sa]", "a*?", "(?<=a)b", ")", "a{0}"],
)
def test_patterns_that_are_not_understood_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern 0 is not understood"):
        core_of((pattern,))
