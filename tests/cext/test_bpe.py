"""The compiled tokenizers refuse arguments that do not fit, whatever Python checked before."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cext.bpe import BpeCore, MergeError, RwkvCore, SpmCore, UgmCore, WpmCore, find_texts
from engine.gguf import StringArray

U8 = npt.NDArray[np.uint8]
NONE = StringArray.from_strings([])
AB = StringArray.from_strings([b"a", b"b", b"ab"])
ONES = np.ones(3, dtype=np.uint8)
SCORES = np.zeros(3, dtype=np.float32)


def bpe(texts: StringArray = AB, types: U8 = ONES, strips: U8 | None = None, merges: StringArray = NONE) -> BpeCore:
    return BpeCore(texts, types, strips, merges, NONE, byte_level=True)


def test_merges_by_rank() -> None:
    core = bpe(merges=StringArray.from_strings([b"a b"]))
    assert core.encode(b"abba", False) == [2, 1, 0]
    assert core.decode(np.array([2, 1, 0], dtype=np.int32), True) == b"abba"
    assert core.n_vocab == 3
    assert (core.text(2), core.piece(2)) == (b"ab", b"ab")
    assert core.split(b"abba") == [b"abba"]
    assert core.cut(b"abba", True) == [(0, 4, -1)]


@pytest.mark.parametrize(
    "strings",
    [
        StringArray(np.zeros(4, np.uint8), np.array([0, 5], np.uint64), np.array([1, 0], np.uint64)),
        StringArray(np.zeros(4, np.uint8), np.array([2, 2], np.uint64), np.array([3, 0], np.uint64)),
        StringArray(np.zeros(4, np.uint8), np.array([2**64 - 1, 0], np.uint64), np.array([2, 0], np.uint64)),
        StringArray(np.zeros(4, np.uint8), np.array([1, 0], np.uint64), np.array([2**64 - 1, 0], np.uint64)),
        StringArray(np.zeros(4, np.uint8), np.array([0, 0], np.uint64), np.array([0], np.uint64)),
    ],
)
def test_strings_outside_their_blob(strings: StringArray) -> None:
    with pytest.raises(ValueError, match=r"outside the blob|differ in number"):
        bpe(strings, np.ones(2, dtype=np.uint8))
    with pytest.raises(ValueError, match=r"outside the blob|differ in number"):
        bpe(merges=strings)
    with pytest.raises(ValueError, match=r"outside the blob|differ in number"):
        find_texts(strings, AB)


@pytest.mark.parametrize(
    ("types", "strips"),
    [
        (np.ones(2, np.uint8), None),
        (np.ones(0, np.uint8), None),
        (np.full(3, 7, np.uint8), None),
        (ONES, np.ones(2, np.uint8)),
        (ONES, np.ones(4, np.uint8)),
    ],
)
def test_types_and_flags_that_do_not_fit(types: U8, strips: U8 | None) -> None:
    with pytest.raises(ValueError, match=r"fit|has type"):
        bpe(types=types, strips=strips)
    with pytest.raises(ValueError, match=r"fit|has type"):
        SpmCore(AB, types, strips, SCORES, add_space_prefix=False, unknown=-1)
    with pytest.raises(ValueError, match=r"fit|has type"):
        WpmCore(AB, types, strips, unknown=-1)
    with pytest.raises(ValueError, match=r"fit|has type"):
        RwkvCore(AB, types, strips, unknown=-1)


@pytest.mark.parametrize("scores", [np.zeros(2, np.float32), np.zeros(4, np.float32)])
def test_scores_that_do_not_fit(scores: npt.NDArray[np.float32]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        SpmCore(AB, ONES, None, scores, add_space_prefix=False, unknown=-1)
    with pytest.raises(ValueError, match="do not fit"):
        UgmCore(AB, ONES, None, scores, None, add_space_prefix=False, remove_extra_whitespaces=False, unknown=0)


@pytest.mark.parametrize("unknown", [3, 2**31 - 1])
def test_an_unknown_token_that_is_none(unknown: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        SpmCore(AB, ONES, None, SCORES, add_space_prefix=False, unknown=unknown)


@pytest.mark.parametrize("merge", [b"", b"a", b" ", b"a c", b"c a", b"b a", b" a"])
def test_merges_that_are_none(merge: bytes) -> None:
    with pytest.raises(MergeError) as error:
        bpe(merges=StringArray.from_strings([b"a b", merge]))
    assert error.value.index == 1


@pytest.mark.parametrize(
    "charsmap",
    [b"abc", b"\xff\xff\xff\xff", b"\x04\0\0\0", b"\x04\0\0\0\0\0\0\0", b"\x03\0\0\0abc\0", b"\x04\0\0\0\0\0\0\0a"],
)
def test_charsmaps_that_break_their_format(charsmap: bytes) -> None:
    with pytest.raises(ValueError, match="charsmap"):
        UgmCore(
            AB,
            ONES,
            None,
            SCORES,
            np.frombuffer(charsmap, dtype=np.uint8),
            add_space_prefix=True,
            remove_extra_whitespaces=True,
            unknown=0,
        )


def test_a_charsmap_of_noise_is_read_safely() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        units = rng.integers(0, 2**32, size=64, dtype=np.uint32).tobytes()
        charsmap = len(units).to_bytes(4, "little") + units + b"xyz\0ab\0"
        core = UgmCore(
            AB,
            ONES,
            None,
            SCORES,
            np.frombuffer(charsmap, dtype=np.uint8),
            add_space_prefix=True,
            remove_extra_whitespaces=True,
            unknown=0,
        )
        assert all(0 <= token < 3 for token in core.encode(bytes(range(1, 256)) * 2, True))


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"\xe2\x96", b"\xf4\x90\x80\x80", b"\xc0\x80", b"a\x80b", bytes(range(256))]
)
def test_bytes_that_are_no_utf8(text: bytes) -> None:
    pattern = StringArray.from_strings([rb"\p{L}+|\s+(?!\S)|[^\s\p{L}]+"])
    cores = [
        BpeCore(AB, ONES, None, NONE, pattern, byte_level=True),
        BpeCore(AB, ONES, None, NONE, pattern, byte_level=False),
        SpmCore(AB, ONES, None, SCORES, add_space_prefix=True, unknown=0),
        WpmCore(AB, ONES, None, unknown=0),
        UgmCore(AB, ONES, None, SCORES, None, add_space_prefix=True, remove_extra_whitespaces=True, unknown=0),
        RwkvCore(AB, ONES, None, unknown=0),
    ]
    for core in cores:
        ids = core.encode(text, True)
        assert all(0 <= token < 3 for token in ids)
        core.decode(np.array(ids, dtype=np.int32), True)
        core.cut(text, True)


@pytest.mark.parametrize("token", [-1, 3, 2**31 - 1, -(2**31)])
def test_tokens_outside_the_vocabulary(token: int) -> None:
    core = bpe()
    with pytest.raises(IndexError):
        core.decode(np.array([0, token], dtype=np.int32), True)
    with pytest.raises(IndexError):
        core.text(token)
    with pytest.raises(IndexError):
        core.piece(token)


def test_find_texts_takes_the_last() -> None:
    texts = StringArray.from_strings([b"<a>", b"b", b"<a>", b"", b"c" * 300])
    assert find_texts(texts, StringArray.from_strings([b"<a>", b"x", b"", b"b", b"b"])) == [2, -1, -1, 1, 1]
    assert find_texts(texts, NONE) == []
    assert find_texts(NONE, texts) == [-1] * 5
