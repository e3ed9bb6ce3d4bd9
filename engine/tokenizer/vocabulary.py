"""Read a vocabulary's tokens, types and scores from a model file, checked.

Between `gguf` and the tokenizers of this package, which build their tables from what is read here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from cext.bpe import find_texts
from engine.errors import HparamError
from engine.gguf import GGUFFile, StringArray
from engine.types import F32Array, U8Array

TOKENS, TYPES, SCORES = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"


class TokenType(IntEnum):
    """Types of tokens by their GGUF numbers. Source: GGUF specification, tokenizer.ggml.token_type."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(slots=True)
class Vocabulary:
    """Tokens of a file, before a tokenizer is built of them.

    Attributes:
        gguf: the file.
        tokens: StringArray[n], as written in the file.
        types: u8[n], TokenType of each; its own copy, which `special` corrects.
    """

    gguf: GGUFFile
    tokens: StringArray
    types: U8Array

    def __len__(self) -> int:
        return len(self.tokens)

    def find(self, names: tuple[str, ...]) -> dict[str, int]:
        """The token of each name that is one, by its text in the file."""
        ids = find_texts(self.tokens, StringArray.from_strings([name.encode() for name in names]))
        return {name: token for name, token in zip(names, ids, strict=True) if token >= 0}

    def scores(self) -> F32Array:
        """f32[n], the score of each token. Raises: HparamError: missing, too few, or not numbers."""
        scores = self.gguf.get_floats(SCORES)
        if len(scores) != len(self):
            raise HparamError(SCORES, f"{len(scores):,} scores for {len(self):,} tokens", self.gguf.path)
        if np.isnan(scores).any():
            where = int(np.isnan(scores).argmax())
            raise HparamError(SCORES, f"the score of token {where:,} is not a number", self.gguf.path)
        return scores


def read_vocabulary(gguf: GGUFFile) -> Vocabulary:
    """Read tokens and their types.

    Raises: HparamError: no tokens, more than fit, types that do not belong to them.
    """
    tokens = gguf.get_strings(TOKENS)
    if not 0 < len(tokens) < 2**31 - 1:
        raise HparamError(TOKENS, f"{len(tokens):,} tokens", gguf.path)
    types = gguf.get_ints(TYPES, None)
    if types is None:
        return Vocabulary(gguf, tokens, np.full(len(tokens), TokenType.NORMAL, dtype=np.uint8))
    if len(types) != len(tokens):
        raise HparamError(TYPES, f"{len(types):,} types for {len(tokens):,} tokens", gguf.path)
    if types.min() < min(TokenType) or types.max() > max(TokenType):
        where = int(((types < min(TokenType)) | (types > max(TokenType))).argmax())
        raise HparamError(TYPES, f"token {where:,} has type {int(types[where])}, which does not exist", gguf.path)
    return Vocabulary(gguf, tokens, types.astype(np.uint8))
