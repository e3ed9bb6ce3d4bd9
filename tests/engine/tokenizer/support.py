"""Vocabularies for tests: the project's own small ones, foreign ones where they are, and crafted ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine.gguf import GGUFWriter, StringArray, open_gguf
from engine.tokenizer import Tokenizer, load_tokenizer

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
FOREIGN = ROOT.parent / "shared" / "oracle" / "tokenizer"
OWN_NAMES = ("tiny-rwkv", "tiny-spm", "tiny-spm-noprefix", "tiny-ugm", "tiny-wordpiece")
FOREIGN_NAMES = (
    "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "llama-bpe", "llama-spm",
    "mpt", "phi-3", "qwen2", "refact", "starcoder",
)  # fmt: skip


@dataclass(frozen=True)
class EncodeCase:
    """A text, how it is encoded, and the right ids."""

    text: str
    add_special: bool
    parse_special: bool
    ids: list[int]


def vocab_folder(name: str) -> Path:
    """Where a vocabulary and its cases lie; skips the test where a foreign one is not here."""
    folder = (DATA if name in OWN_NAMES else FOREIGN) / name
    if not folder.is_dir():
        pytest.skip(f"the vocabulary {name} is not ours to bring along, and {FOREIGN} is not here")
    return folder


def load(path: Path) -> Tokenizer:
    """The tokenizer of a file."""
    with open_gguf(path) as gguf:
        return load_tokenizer(gguf)


def cases_of(folder: Path) -> tuple[list[EncodeCase], list[tuple[list[int], str]]]:
    """(encodings, decodings) of a vocabulary's folder."""
    texts = (folder / "cases.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = (folder / "cases.out").read_text(encoding="utf-8").split("\n")
    encodings = [
        EncodeCase(t, False, False, list(map(int, line.split()))) for t, line in zip(texts, lines, strict=False)
    ]
    decodings = []
    for case in json.loads((folder / "extra.json").read_text(encoding="utf-8"))["cases"]:
        encodings.append(EncodeCase(case["text"], False, False, case["plain"]))
        encodings.append(EncodeCase(case["text"], False, True, case["parse_special"]))
        encodings.append(EncodeCase(case["text"], True, False, case["add_special"]))
        encodings.append(EncodeCase(case["text"], True, True, case["add_and_parse_special"]))
        decodings.append((case["parse_special"], case["detokenized_of_parse_special"]))
    return encodings, decodings


def byte_alphabet() -> list[str]:
    """The character of each byte, by GPT-2's table."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in itself else chr(next(others)) for byte in range(256)]


# Pairs of a small byte-level vocabulary, by rank; Ġ is a space, Ċ a new line.
MERGES = (
    "h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Ġ", "ĠĠ ĠĠ", "a a", "aa aa", "Ċ Ċ",
    "Ġ hello", "1 2", "i n", "in g", "Ã ©", "ð Ł",
)  # fmt: skip
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def craft_bpe(
    path: Path,
    pre: str | None = "gpt-2",
    *,
    merges: Sequence[str] | None = MERGES,
    specials: Sequence[str] = SPECIALS,
    user_defined: Sequence[str] = ("<tool>",),
    **metadata: object,
) -> Path:
    """Write a small byte-level vocabulary; keys of metadata stand for `tokenizer.ggml.<key>`, None leaves one out."""
    joined = list(dict.fromkeys("".join(merge.split(" ")) for merge in merges or ()))
    tokens = [*byte_alphabet(), *joined, *specials, *user_defined]
    types = [NORMAL] * (256 + len(joined)) + [CONTROL] * len(specials) + [USER_DEFINED] * len(user_defined)
    values: dict[str, object] = {
        "model": "gpt2",
        "pre": pre,
        "tokens": StringArray.from_strings([token.encode() for token in tokens]),
        "token_type": np.array(types, dtype=np.int32),
        "merges": None if merges is None else StringArray.from_strings([merge.encode() for merge in merges]),
        "eos_token_id": 256 + len(joined),
        **metadata,
    }
    return craft(path, {f"tokenizer.ggml.{key}": value for key, value in values.items()})


def craft_spm(path: Path, tokens: Sequence[tuple[str, float, int]], **metadata: object) -> Path:
    """Write a SentencePiece vocabulary of (text, score, type)."""
    texts, scores, types = zip(*tokens, strict=True)
    values: dict[str, object] = {
        "model": "llama",
        "tokens": StringArray.from_strings([text.encode() for text in texts]),
        "scores": np.array(scores, dtype=np.float32),
        "token_type": np.array(types, dtype=np.int32),
        **metadata,
    }
    return craft(path, {f"tokenizer.ggml.{key}": value for key, value in values.items()})


def craft(path: Path, metadata: Mapping[str, object]) -> Path:
    """Write a file of metadata only."""
    writer = GGUFWriter(path, "llama")
    for key, value in metadata.items():
        if value is not None:
            writer.add(key, value)  # type: ignore[arg-type]
    writer.write()
    return path
