"""Ids and texts equal the oracle's, for every vocabulary that is here."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from engine.tokenizer import Tokenizer
from tests.engine.tokenizer.support import FOREIGN_NAMES, OWN_NAMES, cases_of, load, vocab_folder


def check(tokenizer: Tokenizer, folder: Path) -> None:
    encodings, decodings = cases_of(folder)
    assert len(encodings) > 60
    for case in encodings:
        got = tokenizer.encode(case.text, add_special=case.add_special, parse_special=case.parse_special)
        assert got == case.ids, case
    for ids, text in decodings:
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", [*OWN_NAMES, *FOREIGN_NAMES])
def test_ids_and_texts(name: str) -> None:
    folder = vocab_folder(name)
    check(load(folder / "vocab.gguf"), folder)


def test_qwen35(tmp_path: Path) -> None:
    """Its vocabulary is Qwen2's with another pre-tokenizer."""
    folder = vocab_folder("qwen35")
    data = (vocab_folder("qwen2") / "vocab.gguf").read_bytes()
    before = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    old, new = (before + struct.pack("<Q", len(name)) + name for name in (b"qwen2", b"qwen35"))
    assert data.count(old) == 1
    (tmp_path / "vocab.gguf").write_bytes(data.replace(old, new))
    check(load(tmp_path / "vocab.gguf"), folder)


def test_nomic_bert_moe(tmp_path: Path) -> None:
    folder = vocab_folder("nomic-bert-moe")
    (tmp_path / "vocab.gguf").write_bytes(gzip.decompress((folder / "vocab.gguf.gz").read_bytes()))
    check(load(tmp_path / "vocab.gguf"), folder)
