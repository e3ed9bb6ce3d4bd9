"""SentencePiece vocabularies of the BPE kind (`llama`).

Source: google/sentencepiece, src/bpe_model.cc.
"""

from __future__ import annotations

from cext.bpe import SpmCore
from engine.gguf import GGUFFile
from engine.tokenizer.base import Tokenizer, read_add_flags
from engine.tokenizer.special import find_special_tokens, find_strips
from engine.tokenizer.vocabulary import read_vocabulary


def load_spm(gguf: GGUFFile) -> Tokenizer:
    """Build a SentencePiece BPE tokenizer. Raises: HparamError: a damaged vocabulary."""
    vocabulary = read_vocabulary(gguf)
    special = find_special_tokens(vocabulary, bos=1, eos=2, unk=0)
    add_space_prefix = gguf.get_bool("tokenizer.ggml.add_space_prefix", True)
    core = SpmCore(
        vocabulary.tokens,
        vocabulary.types,
        find_strips(vocabulary),
        vocabulary.scores(),
        add_space_prefix=add_space_prefix,
        unknown=-1 if special.unk is None else special.unk,
    )
    add_bos, add_eos = read_add_flags(gguf, special, add_bos=True, add_eos=False)
    return Tokenizer(
        "llama", core, vocabulary, special, add_bos=add_bos, add_eos=add_eos, add_space_prefix=add_space_prefix
    )
