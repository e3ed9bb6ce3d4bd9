"""WordPiece vocabularies (`bert`): texts are normalised and split into words here, words into tokens by the core.

Source: google-research/bert, tokenization.py, BasicTokenizer; where llama.cpp's `llm_tokenizer_wpm` differs (all marks
fall, not only those without width; of a decomposed character only the first part stays), it is followed.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from cext.bpe import WpmCore
from engine.errors import HparamError
from engine.gguf import GGUFFile
from engine.tokenizer.base import Tokenizer
from engine.tokenizer.special import SpecialTokens, find_special_tokens, find_strips
from engine.tokenizer.vocabulary import Vocabulary, read_vocabulary

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WpmTokenizer(Tokenizer):
    """A WordPiece tokenizer; encoding with add_special puts [CLS] in front and [SEP] behind."""

    def __init__(
        self, core: WpmCore, vocabulary: Vocabulary, special: SpecialTokens, *, lowercase: bool, strip_accents: bool
    ) -> None:
        super().__init__("bert", core, vocabulary, special, add_bos=True, add_eos=False, clean_spaces=True)
        self._suffix = [special.sep] if special.sep is not None else []
        self._lowercase, self._strip_accents = lowercase, strip_accents

    def _encode(self, text: bytes, parse_special: bool, is_first: bool = True) -> list[int]:
        ids: list[int] = []
        for begin, end, token in self._core.cut(text, parse_special):
            if token >= 0:
                ids.append(token)
                continue
            words = "".join(
                _normalized(character, self._lowercase, self._strip_accents)
                for character in text[begin:end].decode("utf-8", "replace")
            )
            ids += self._core.encode(words.encode(), False)
        return ids


@lru_cache(maxsize=65536)
def _normalized(character: str, lowercase: bool, strip_accents: bool) -> str:
    """What a character adds to a text: itself, nothing, a space, or itself as a word of its own."""
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
        return " "
    if strip_accents:
        character = unicodedata.normalize("NFD", character)[0]
    category = unicodedata.category(character)
    if character in "\0\ufffd" or category in ("Cc", "Cf", "Cs", "Co") or (strip_accents and category[0] == "M"):
        return ""
    code = ord(character)
    is_word = category[0] == "P" or (code < 0x7F and category[0] == "S")
    is_word = is_word or any(first <= code <= last for first, last in _IDEOGRAPHS)
    text = character.lower() if lowercase else character
    return f" {text} " if is_word else text


def load_wpm(gguf: GGUFFile) -> Tokenizer:
    """Build a WordPiece tokenizer. Raises: HparamError: a damaged vocabulary."""
    vocabulary = read_vocabulary(gguf)
    bos = gguf.get_int("tokenizer.ggml.cls_token_id", 101)
    special = find_special_tokens(vocabulary, bos=bos, unk=100, sep=102, pad=0, mask=103)
    if special.bos is None or special.unk is None:
        raise HparamError("tokenizer.ggml.bos_token_id", "there is no start or no unknown token", gguf.path)
    core = WpmCore(vocabulary.tokens, vocabulary.types, find_strips(vocabulary), unknown=special.unk)
    lowercase = gguf.get_bool("tokenizer.ggml.normalizer.lowercase", True)
    strip_accents = gguf.get_bool("tokenizer.ggml.normalizer.strip_accents", lowercase)
    return WpmTokenizer(core, vocabulary, special, lowercase=lowercase, strip_accents=strip_accents)
