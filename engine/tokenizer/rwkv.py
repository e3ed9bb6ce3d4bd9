"""The vocabulary of RWKV models (`rwkv`).

Source: BlinkDL/ChatRWKV, tokenizer/rwkv_tokenizer.py.
"""

from __future__ import annotations

from cext.bpe import RwkvCore
from engine.gguf import GGUFFile
from engine.tokenizer.base import Tokenizer
from engine.tokenizer.special import find_special_tokens, find_strips
from engine.tokenizer.vocabulary import read_vocabulary


class RwkvTokenizer(Tokenizer):
    """RWKV's tokenizer."""

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text; as in the field, its one control token is always read as such.

        (`encode_part`, which prompts are made with, reads it as text.)
        """
        return super().encode(text, add_special, parse_special=True)


def load_rwkv(gguf: GGUFFile) -> Tokenizer:
    """Build an RWKV tokenizer; it adds no start or end token. Raises: HparamError: a damaged vocabulary."""
    vocabulary = read_vocabulary(gguf)
    special = find_special_tokens(vocabulary)
    unknown = -1 if special.unk is None else special.unk
    core = RwkvCore(vocabulary.tokens, vocabulary.types, find_strips(vocabulary), unknown=unknown)
    return RwkvTokenizer("rwkv", core, vocabulary, special, add_bos=False, add_eos=False)
