"""Pick the tokenizer that a model file names."""

from __future__ import annotations

from engine.errors import UnsupportedTokenizerError
from engine.gguf import GGUFFile
from engine.tokenizer.base import Tokenizer
from engine.tokenizer.bpe import load_bpe
from engine.tokenizer.rwkv import load_rwkv
from engine.tokenizer.spm import load_spm
from engine.tokenizer.ugm import load_ugm
from engine.tokenizer.wpm import load_wpm


def load_tokenizer(gguf: GGUFFile) -> Tokenizer:
    """Build the tokenizer of a model file from its metadata.

    Raises: UnsupportedTokenizerError: a kind that is not known. HparamError: a damaged vocabulary.
    Thread: any.
    Source: GGUF specification, tokenizer.ggml.model.
    """
    match gguf.get_str("tokenizer.ggml.model"):
        case "gpt2" | "gemma4" as model:
            return load_bpe(gguf, model)
        case "llama":
            return load_spm(gguf)
        case "bert":
            return load_wpm(gguf)
        case "t5":
            return load_ugm(gguf)
        case "rwkv":
            return load_rwkv(gguf)
        case model:
            raise UnsupportedTokenizerError(f"model '{model}'")
