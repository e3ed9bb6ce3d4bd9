"""Tokens back to text: whole characters as soon as they are complete.

Used by `base.Tokenizer` and, token by token, by `engine.generate`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

# Source: huggingface/transformers, tokenization_utils_base.py, clean_up_tokenization; as llama.cpp, without " n't".
_PUNCTUATION = re.compile(r" ([.?!,])")
_LONE_APOSTROPHE = re.compile(r" ' ")
_CONTRACTION = re.compile(r" '(?=s|m|ve|re)")


def clean_up_spaces(text: str) -> str:
    """Remove the spaces before punctuation and contractions that some vocabularies put there."""
    text = _PUNCTUATION.sub(r"\1", text)
    return _CONTRACTION.sub("'", _LONE_APOSTROPHE.sub("'", text))


class Detokenizer:
    """Turns tokens into text one by one; bytes of a character that is not complete yet are kept back.

    Bytes that can never become a character turn into U+FFFD, exactly as decoding all of them at once would.

    Thread: one at a time.
    """

    def __init__(self, piece: Callable[[int], bytes], strip_space: bool) -> None:
        self._piece, self._strip_space = piece, strip_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        piece = self._piece(token)
        if self._strip_space:
            piece = piece.removeprefix(b" ")
            self._strip_space = False
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, else nothing."""
        return self._decoder.decode(b"", final=True)
