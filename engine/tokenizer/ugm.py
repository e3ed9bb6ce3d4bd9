"""SentencePiece vocabularies of the Unigram kind (`t5`).

Source: google/sentencepiece, src/unigram_model.cc.
"""

from __future__ import annotations

import numpy as np

from cext.bpe import UgmCore
from engine.errors import HparamError
from engine.gguf import GGUFFile
from engine.tokenizer.base import Tokenizer, read_add_flags
from engine.tokenizer.special import find_special_tokens, find_strips
from engine.tokenizer.vocabulary import read_vocabulary
from engine.types import U8Array

CHARSMAP = "tokenizer.ggml.precompiled_charsmap"


def load_ugm(gguf: GGUFFile) -> Tokenizer:
    """Build a Unigram tokenizer. Raises: HparamError: a damaged vocabulary."""
    vocabulary = read_vocabulary(gguf)
    special = find_special_tokens(vocabulary, eos=1, unk=2, pad=0)
    if special.unk is None:
        raise HparamError("tokenizer.ggml.unknown_token_id", "there is no unknown token", gguf.path)
    add_space_prefix = gguf.get_bool("tokenizer.ggml.add_space_prefix", False)
    scores, strips = vocabulary.scores(), find_strips(vocabulary)
    try:
        core = UgmCore(
            vocabulary.tokens,
            vocabulary.types,
            strips,
            scores,
            _read_charsmap(gguf),
            add_space_prefix=add_space_prefix,
            remove_extra_whitespaces=gguf.get_bool("tokenizer.ggml.remove_extra_whitespaces", False),
            unknown=special.unk,
        )
    except ValueError as error:
        raise HparamError(CHARSMAP, str(error), gguf.path) from error
    add_bos, add_eos = read_add_flags(gguf, special, add_bos=False, add_eos=True)
    return Tokenizer(
        "t5", core, vocabulary, special, add_bos=add_bos, add_eos=add_eos, add_space_prefix=add_space_prefix
    )


def _read_charsmap(gguf: GGUFFile) -> U8Array | None:
    if not gguf.has(CHARSMAP):
        return None
    value = gguf.metadata[CHARSMAP]
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.dtype.itemsize != 1:
        raise HparamError(CHARSMAP, "an array of bytes expected", gguf.path)
    return np.ascontiguousarray(value).view(np.uint8)
