"""Find a vocabulary's special tokens: by the file's keys, else by the texts that the field gives them.

Between `vocabulary` and the tokenizers of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import HparamError
from engine.tokenizer.vocabulary import TokenType, Vocabulary
from engine.types import U8Array

# The end of a text in one family, an HTML tag of the vocabulary in those that have the other.
_SPM_END, _HTML_FAMILY = "</s>", "<eos>"
# Source for the texts: llama.cpp, src/llama-vocab.cpp; each is the name that a family of models uses.
_END_OF_TURN = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
    "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>",
)  # fmt: skip
_END_OF_MESSAGE = ("<|eom_id|>",)
_END_OF_GENERATION = (
    *_END_OF_TURN, *_END_OF_MESSAGE, "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "[EOS]", _HTML_FAMILY,
    "<|tool_response>", "[e~[",
)  # fmt: skip
_FIM_PREFIX = (
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>",
)  # fmt: skip
_FIM_SUFFIX = (
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>",
)  # fmt: skip
_FIM_MIDDLE = (
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>",
)  # fmt: skip
_FIM_PAD = ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]")
_FIM_REPO = ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>")
_FIM_FILE = ("<|file_sep|>",)
_FIM_ENDS = (("fim_pad", _FIM_PAD), ("fim_rep", _FIM_REPO), ("fim_sep", _FIM_FILE))
_CONTROL = (_SPM_END, *_END_OF_GENERATION, *_FIM_PREFIX, *_FIM_SUFFIX, *_FIM_MIDDLE, *_FIM_PAD, *_FIM_REPO, *_FIM_FILE)
# With these, "<|end|>" ends a part of the answer, not the answer.
_PARTS_END = (frozenset({"<|return|>", "<|call|>"}), frozenset({"<|calls|>", "<|flush|>"}))

_NO_TOKEN = (-1, 2**32 - 1, 2**64 - 1)
"""What files write for "there is none"."""


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens of a vocabulary; None where it has none.

    Attributes:
        bos: starts a text.
        eos: ends a text.
        eot: ends a turn of a conversation.
        eom: ends a message, with more to come.
        unk: stands for what the vocabulary does not know.
        sep: separates texts.
        pad: fills up.
        mask: stands for a hidden token.
        fim_prefix: what follows stands before the gap to fill.
        fim_suffix: what follows stands behind it.
        fim_middle: what follows fills it.
        eog: all that end a generation.
    """

    bos: int | None
    eos: int | None
    eot: int | None
    eom: int | None
    unk: int | None
    sep: int | None
    pad: int | None
    mask: int | None
    fim_prefix: int | None
    fim_suffix: int | None
    fim_middle: int | None
    eog: frozenset[int]


def find_special_tokens(vocabulary: Vocabulary, **defaults: int) -> SpecialTokens:
    """Find the special tokens, and correct the type of those that a file calls normal.

    Args:
        vocabulary: its types are changed in place.
        defaults: bos, eos, unk, sep, pad, mask where the file does not say, as the tokenizer's model has them.
    Raises: HparamError: an id that is no token.
    """
    found = vocabulary.find(_CONTROL)
    if _HTML_FAMILY in found:
        found.pop(_SPM_END, None)
    spm_end = found.get(_SPM_END)
    spm_ends = {spm_end} if spm_end is not None and vocabulary.types[spm_end] == TokenType.CONTROL else set()
    for token_id in found.values():
        if vocabulary.types[token_id] in (TokenType.NORMAL, TokenType.USER_DEFINED):
            vocabulary.types[token_id] = TokenType.CONTROL

    def named(key: str, names: tuple[str, ...] = ()) -> int | None:
        return _read_id(vocabulary, key, next((found[name] for name in names if name in found), None))

    def default(key: str, name: str) -> int | None:
        token = defaults.get(name)
        return _read_id(vocabulary, key, token if token is not None and token < len(vocabulary) else None)

    bos, eos, unk = default("bos", "bos"), default("eos", "eos"), default("unknown", "unk")
    eot, eom = named("eot", _END_OF_TURN), named("eom", _END_OF_MESSAGE)
    fim_ends = [named(key, names) for key, names in _FIM_ENDS]
    ends = {token for token in (eos, eot, eom, *fim_ends) if token is not None}
    ends |= spm_ends | {found[name] for name in _END_OF_GENERATION if name in found}
    if any(parts <= found.keys() for parts in _PARTS_END) and "<|end|>" in found:
        ends.discard(found["<|end|>"])
    return SpecialTokens(
        bos=bos,
        eos=eos,
        eot=eot,
        eom=eom,
        unk=unk,
        # The keys of older files are misspelt.
        sep=default("separator" if vocabulary.gguf.has(_key("separator")) else "seperator", "sep"),
        pad=default("padding", "pad"),
        mask=default("mask", "mask"),
        fim_prefix=named("fim_pre", _FIM_PREFIX),
        fim_suffix=named("fim_suf", _FIM_SUFFIX),
        fim_middle=named("fim_mid", _FIM_MIDDLE),
        eog=frozenset(ends),
    )


def find_strips(vocabulary: Vocabulary) -> U8Array | None:
    """u8[n], white space that goes with a special token in text (1 left of it, 2 right of it), or None for nowhere.

    Files do not say; the families that need it are known by name. Source: llama.cpp, src/llama-vocab.cpp; the
    `lstrip` and `rstrip` of their tokenizer.json.
    """
    gguf = vocabulary.gguf
    name = gguf.get_str("general.name", "").lower()
    strips = np.zeros(len(vocabulary), dtype=np.uint8)
    if gguf.get_str("general.architecture", "") in ("nomic-bert-moe", "jina-bert-v3") or gguf.get_str(
        "tokenizer.ggml.pre", ""
    ) in ("jina-v2-de", "jina-v2-es", "jina-v2-code"):
        for token in vocabulary.find(("<mask>",)).values():
            strips[token] = 1
    elif "phi-3" in name or "phi3" in name:
        special = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        strips[np.isin(vocabulary.types, special)] = 2
        for text, token in vocabulary.find(("</s>", "<unk>", "<s>", "<|endoftext|>")).items():
            strips[token] = 2 if text == "</s>" else 0
    elif "modern-bert" in name:
        for token in vocabulary.find(("[MASK]",)).values():
            strips[token] = 1
    return strips if strips.any() else None


def _key(name: str) -> str:
    return f"tokenizer.ggml.{name}_token_id"


def _read_id(vocabulary: Vocabulary, name: str, default: int | None) -> int | None:
    gguf = vocabulary.gguf
    token = gguf.get_int(_key(name), None, lo=-1, hi=2**64 - 1)
    if token is None:
        return default
    if token in _NO_TOKEN:
        return None
    if token >= len(vocabulary):
        raise HparamError(_key(name), f"{token:,} is no token of {len(vocabulary):,}", gguf.path)
    return token
