"""Byte-pair vocabularies: `gpt2` over bytes, `gemma4` over characters.

Source: openai/gpt-2, encoder.py; huggingface/tokenizers, models/bpe.
"""

from __future__ import annotations

import logging

from cext.bpe import BpeCore, MergeError
from engine.errors import HparamError, UnsupportedTokenizerError
from engine.gguf import GGUFFile, StringArray
from engine.tokenizer.base import Tokenizer, TokenizerModel, read_add_flags
from engine.tokenizer.pretokenizers import PRE_TOKENIZERS, SPACE_MARK_PRE_TOKENIZERS, PreTokenizer
from engine.tokenizer.special import find_special_tokens, find_strips
from engine.tokenizer.vocabulary import read_vocabulary

MERGES = "tokenizer.ggml.merges"

log = logging.getLogger(__name__)


def load_bpe(gguf: GGUFFile, model: TokenizerModel) -> Tokenizer:
    """Build a byte-pair tokenizer.

    Raises: UnsupportedTokenizerError: a pre-tokenizer that is not known. HparamError: a damaged vocabulary.
    """
    name, rule = _pre_tokenizer(gguf, model)
    byte_level = name not in SPACE_MARK_PRE_TOKENIZERS
    vocabulary = read_vocabulary(gguf)
    special = find_special_tokens(vocabulary)
    merges = gguf.get_strings(MERGES)
    try:
        core = BpeCore(
            vocabulary.tokens,
            vocabulary.types,
            find_strips(vocabulary),
            merges,
            StringArray.from_strings([stage.encode() for stage in rule.stages]),
            byte_level=byte_level,
            ignore_merges=rule.ignore_merges,
            whole_newlines=model == "gemma4",
        )
    except MergeError as error:
        merge = merges[error.index].decode("utf-8", "replace")
        raise HparamError(MERGES, f"merge {error.index:,} {merge!r:.80} does not join tokens", gguf.path) from error
    add_bos, add_eos = read_add_flags(gguf, special, add_bos=rule.add_bos, add_eos=False)
    # Gemma 4's files say that no start token is added; its tokenizer adds one all the same.
    add_bos = add_bos or (model == "gemma4" and special.bos is not None)
    return Tokenizer(model, core, vocabulary, special, add_bos=add_bos, add_eos=add_eos, clean_spaces=rule.clean_spaces)


def _pre_tokenizer(gguf: GGUFFile, model: TokenizerModel) -> tuple[str, PreTokenizer]:
    name = "gemma4" if model == "gemma4" else gguf.get_str("tokenizer.ggml.pre", "")
    if not name:
        # As the field does; such a file was made before pre-tokenizers were recorded.
        log.warning("%s: tokenizer.ggml.pre is missing, 'default' is used; answers may be worse", gguf.path)
        name = "default"
    rule = PRE_TOKENIZERS.get(name) or SPACE_MARK_PRE_TOKENIZERS.get(name)
    if rule is None:
        raise UnsupportedTokenizerError(f"{model} with pre-tokenizer '{name}'")
    return name, rule
