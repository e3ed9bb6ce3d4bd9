"""Marks in messages: characters that say where a message's text begins and ends in a rendered prompt, and that keep a
control token written by a person from being read as one.

Used by `prompt`. The marks are non-characters, which no text holds; they are taken out before anything is encoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

# Source: Unicode Standard, 23.7: U+FDD0..U+FDEF are for internal use and never interchanged.
_OPEN, _CLOSE, _BREAK = "\ufdd0", "\ufdd1", "\ufdd2"
_DIGITS = "\ufdd3\ufdd4\ufdd5\ufdd6\ufdd7\ufdd8\ufdd9\ufdda\ufddb\ufddc"
_ANY = re.compile("[\ufdd0-\ufdef]")
_SPAN = re.compile(f"{_OPEN}([{_DIGITS}]+)([^{_OPEN}{_CLOSE}]*){_CLOSE}")

CutControl = Callable[[str], list[tuple[str, int | None]]]
Message = Mapping[str, object]

# A model's own thoughts are told apart from its answer by these; templates look for them in what it said.
_THOUGHTS = ("<think>", "</think>")


def without_marks(text: str) -> str:
    """The text without any marks."""
    return _ANY.sub("", text)


def cleaned(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The same messages, with U+FFFD for what would look like a mark."""
    return [{key: _mapped(value, _clean) for key, value in message.items()} for message in messages]


def broken(messages: Sequence[Message], cut: CutControl) -> list[dict[str, object]]:
    """The same messages, with a mark inside each control token that is written in them."""

    def break_all(text: str) -> str:
        return "".join(part if token is None else part[:1] + _BREAK + part[1:] for part, token in cut(text))

    def break_reply(text: str) -> str:
        parts = cut(text)
        return "".join(p if t is None or p in _THOUGHTS else p[:1] + _BREAK + p[1:] for p, t in parts)

    return [
        {
            key: value
            if key == "role"
            else _mapped(value, break_reply if message.get("role") == "assistant" else break_all)
            for key, value in message.items()
        }
        for message in messages
    ]


def spanned(messages: Sequence[Message]) -> list[dict[str, object]]:
    """The same messages, with marks around the text of each, inside its outer white space.

    There they outlive a template's `trim`.
    """
    return [{**message, "content": _span(i, message.get("content"))} for i, message in enumerate(messages)]


def find_spans(marked: str) -> list[tuple[int, int, int]]:
    """(first character, character behind, message) of each marked text, in `without_marks(marked)`."""
    spans = []
    n_removed = end = 0
    for found in _SPAN.finditer(marked):
        n_removed += len(_ANY.findall(marked, end, found.start()))
        begin = found.start() - n_removed
        text = without_marks(found[2])
        spans.append((begin, begin + len(text), int("".join(str(_DIGITS.index(digit)) for digit in found[1]))))
        n_removed += len(found[0]) - len(text)
        end = found.end()
    return spans


def cut_marked(marked: str, places: Sequence[int]) -> list[str]:
    """Cut a marked text at places of `without_marks(marked)`, ascending; one piece more than places."""
    pieces = []
    start = at = n_plain = 0
    for place in places:
        while n_plain < place:
            n_plain += not _ANY.match(marked, at)
            at += 1
        pieces.append(marked[start:at])
        start = at
    return [*pieces, marked[start:]]


def _span(index: int, content: object) -> object:
    if not isinstance(content, str) or not content.strip():
        return content
    text = content.strip()
    begin = content.index(text)
    digits = "".join(_DIGITS[int(digit)] for digit in str(index))
    return f"{content[:begin]}{_OPEN}{digits}{text}{_CLOSE}{content[begin + len(text) :]}"


def _clean(text: str) -> str:
    return _ANY.sub("\ufffd", text)


def _mapped(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    return value
