"""What every tokenizer can do; the models differ in their compiled core and in a few flags.

`chat` encodes messages through it, `generate` decodes what the model answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from cext.bpe import TokenizerCore
from engine.errors import HparamError
from engine.gguf import GGUFFile
from engine.tokenizer.detokenizer import Detokenizer, clean_up_spaces
from engine.tokenizer.special import SpecialTokens
from engine.tokenizer.vocabulary import TokenType, Vocabulary

TokenizerModel = Literal["gpt2", "gemma4", "llama", "bert", "t5", "rwkv"]


class Tokenizer:
    """Text to token ids and back.

    Attributes:
        model: the rule, by its name in GGUF's `tokenizer.ggml.model`.
        special: the special tokens.
        add_bos: encoding with add_special puts a start token in front.
        add_eos: and an end token behind.
        add_space_prefix: text gets a space in front, which decoding takes away again.
        clean_spaces: decoding whole texts removes spaces before punctuation.
        escapes_spaces: tokens are written with U+2581 for a space.

    Thread: any; calls may overlap.
    """

    def __init__(
        self,
        model: TokenizerModel,
        core: TokenizerCore,
        vocabulary: Vocabulary,
        special: SpecialTokens,
        *,
        add_bos: bool,
        add_eos: bool,
        add_space_prefix: bool = False,
        clean_spaces: bool = False,
    ) -> None:
        self.model: TokenizerModel = model
        self.special = special
        self.add_bos, self.add_eos = add_bos, add_eos
        self.add_space_prefix, self.clean_spaces = add_space_prefix, clean_spaces
        self._core, self._types = core, vocabulary.types
        self._prefix = [special.bos] if add_bos and special.bos is not None else []
        self._suffix = [special.eos] if add_eos and special.eos is not None else []

    @property
    def n_vocab(self) -> int:
        """Tokens in the vocabulary."""
        return self._core.n_vocab

    @property
    def bos_token_id(self) -> int | None:
        """The token that starts a text."""
        return self.special.bos

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text."""
        return self.special.eos

    @property
    def eot_token_id(self) -> int | None:
        """The token that ends a turn."""
        return self.special.eot

    @property
    def eog_token_ids(self) -> frozenset[int]:
        """All tokens that end a generation."""
        return self.special.eog

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text.

        Args:
            text: any; a lone surrogate is read as U+FFFD.
            add_special: add the start and end tokens that the vocabulary asks for.
            parse_special: read control tokens written in the text as such; never for text by a person.
        """
        ids = self._encode(_utf8(text), parse_special)
        return [*self._prefix, *ids, *self._suffix] if add_special else ids

    def decode(self, ids: Iterable[int], *, special: bool = True, clean_spaces: bool | None = None) -> str:
        """The text of tokens.

        Args:
            ids: tokens of this vocabulary.
            special: write control tokens out, too.
            clean_spaces: remove spaces before punctuation; None: where the vocabulary asks for it.
        Raises: IndexError: an id that is no token.
        """
        tokens = np.fromiter(ids, dtype=np.int32)
        if not len(tokens):
            return ""
        first = self.token_to_piece(int(tokens[0]), special)
        if self.add_space_prefix:
            first = first.removeprefix(b" ")
        text = (first + self._core.decode(tokens[1:], special)).decode("utf-8", "replace")
        return clean_up_spaces(text) if (self.clean_spaces if clean_spaces is None else clean_spaces) else text

    def detokenizer(self, *, special: bool = False, is_continuation: bool = False) -> Detokenizer:
        """A decoder for tokens that come one by one. It never cleans up spaces: the text is what the model wrote.

        Args:
            special: write control tokens out, too.
            is_continuation: the tokens follow other text, so that a leading space belongs to them.
        """
        strip = self.add_space_prefix and not is_continuation
        return Detokenizer(lambda token: self.token_to_piece(token, special), strip)

    def token_to_piece(self, token: int, special: bool = True) -> bytes:
        """The bytes that a token stands for; empty for a control token unless `special`.

        Raises: IndexError: no token of this vocabulary.
        """
        if not special and 0 <= token < len(self._types) and self.is_special(token):
            return b""
        return self._core.piece(token)

    def token_text(self, token: int) -> str:
        """The token as it is written in the file. Raises: IndexError."""
        return self._core.text(token).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        """Whether it is a control token or the unknown token: one that is no text. Raises: IndexError."""
        return self.token_type(token) in (TokenType.CONTROL, TokenType.UNKNOWN)

    def token_type(self, token: int) -> TokenType:
        """What kind of token it is. Raises: IndexError."""
        if not 0 <= token < len(self._types):
            raise IndexError(f"token {token} is outside the vocabulary of {len(self._types)}")
        return TokenType(int(self._types[token]))

    def find_token(self, text: str) -> int | None:
        """The control or user-defined token with that text, or None."""
        ids = self._core.encode(_utf8(text), True)
        return ids[0] if len(ids) == 1 and self._core.text(ids[0]) == _utf8(text) else None

    def encode_part(self, text: str, *, is_first: bool) -> list[int]:
        """The ids of text from the middle of a prompt, in which nothing is read as a control token.

        Args:
            text: any.
            is_first: it stands at the start, or behind a special token.
        """
        return self._encode(_utf8(text), False, is_first)

    def cut_control(self, text: str) -> list[tuple[str, int | None]]:
        """Cut text at its control tokens: pairs of text and None, or of a token's text and the token."""
        data = _utf8(text)
        parts: list[tuple[str, int | None]] = []
        begin = end = 0
        for part_begin, part_end, token in self._core.cut(data, True):
            if token >= 0 and self.is_special(token):
                parts += [(data[begin:end].decode(), None)] if end > begin else []
                parts.append((data[part_begin:part_end].decode(), token))
                begin = end = part_end
            else:
                begin = part_begin if begin == end else begin
                end = part_end
        return [*parts, (data[begin:end].decode(), None)] if end > begin else parts

    def _encode(self, text: bytes, parse_special: bool, is_first: bool = True) -> list[int]:
        return self._core.encode(text, parse_special, is_first)


def read_add_flags(gguf: GGUFFile, special: SpecialTokens, *, add_bos: bool, add_eos: bool) -> tuple[bool, bool]:
    """Whether start and end tokens are added: as the file says, else by the default given.

    Raises: HparamError: the file asks for a token that it does not have.
    """
    flags = []
    for name, token, default in (("bos", special.bos, add_bos), ("eos", special.eos, add_eos)):
        asked = gguf.get_bool(f"tokenizer.ggml.add_{name}_token", None)
        if asked and token is None:
            raise HparamError(f"tokenizer.ggml.add_{name}_token", f"is true, but there is no {name} token", gguf.path)
        flags.append(token is not None and (default if asked is None else asked))
    return flags[0], flags[1]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Lone surrogates are no characters; "surrogatepass" and "replace" turn each into one U+FFFD.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
