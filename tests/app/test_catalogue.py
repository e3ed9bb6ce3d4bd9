"""The catalogue: copies told apart, what models take, and hundreds of files at once."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from app.bridge import entries, places
from app.bridge.catalogue import Catalogue
from app.bridge.header_cache import load_cache, save_cache
from app.bridge.messages import ModelEntry
from app.bridge.programs import FoundFile, Home
from engine.gguf.writer import GGUFWriter
from engine.types import QuantType

DATA = Path(__file__).parents[1] / "data"
N_FILES = 500


@pytest.fixture(autouse=True)
def only_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "default_models_folder", lambda: tmp_path / "none")
    monkeypatch.setattr("importlib.metadata.distributions", lambda: ())


def scan(catalogue: Catalogue, folder: Path) -> list[list[ModelEntry]]:
    return [sorted(f.entries, key=lambda e: e.name) for f in catalogue.scan((str(folder),), lambda: False)]


def catalogue_of(tmp_path: Path) -> Catalogue:
    return Catalogue(tmp_path / "cache" / "models.json", Home("linux", tmp_path / "home", {}))


def write_tiny(path: Path, arch: str, number: int = 0) -> None:
    writer = GGUFWriter(path, arch)
    writer.add("general.name", f"model {number}")
    writer.add_tensor("token_embd.weight", QuantType.F32, np.full(32, number, np.float32).view(np.uint8), (1, 32))
    writer.write()


def test_headers_first_and_then_what_models_take(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DATA / "llama" / "model.gguf", folder / "a.gguf")
    shutil.copy(DATA / "bert-cls" / "model.gguf", folder / "bert.gguf")
    (folder / "broken.gguf").write_bytes(b"GGUF\x03")
    lists = scan(catalogue_of(tmp_path), folder)
    first, last = lists[0], lists[-1]
    assert [entry.name for entry in first] == ["a", "bert", "broken"]
    assert first[0].need_bytes == 0
    assert "cannot chat" in last[1].problem
    assert last[2].problem
    entry = last[0]
    assert entry.tok_s > 0
    assert entry.active_bytes > 0
    assert [(c.type_kv, c.n_ctx) for c in entry.contexts] == [("f16", 512)]  # heads of 16 take no blocks of 32
    assert entry.contexts[0].n_bytes == entry.need_bytes > entry.size_bytes


def test_copies_are_listed_once_and_towers_and_adapters_never(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    (folder / "again").mkdir(parents=True)
    shutil.copy(DATA / "llama" / "model.gguf", folder / "a.gguf")
    shutil.copy(DATA / "llama" / "model.gguf", folder / "again" / "another name.gguf")
    other = bytearray((folder / "a.gguf").read_bytes())
    other[len(other) // 2] ^= 1  # the same size, other weights
    (folder / "other.gguf").write_bytes(bytes(other))
    shutil.copy(DATA / "smolvlm" / "mmproj.gguf", folder / "vision part.gguf")
    shutil.copy(DATA / "smolvlm" / "mmproj.gguf", folder / "mmproj-x.gguf")
    names = [entry.name for entry in scan(catalogue_of(tmp_path), folder)[-1]]
    assert names in (["a", "other"], ["a"])  # a sample may miss one bit; the full hash is for who asks
    assert "another name" not in names


def test_a_second_look_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DATA / "llama" / "model.gguf", folder / "a.gguf")
    before = scan(catalogue_of(tmp_path), folder)[-1]

    def refuse(found: FoundFile) -> None:
        raise AssertionError(found)

    with monkeypatch.context() as patch:
        patch.setattr("app.bridge.catalogue.read_entry", refuse)
        after = scan(catalogue_of(tmp_path), folder)
    assert len(after) == 1
    assert [entry.contexts for entry in after[0]] == [entry.contexts for entry in before]
    shutil.copy(DATA / "qwen2" / "model.gguf", folder / "a.gguf")
    assert scan(catalogue_of(tmp_path), folder)[-1][0].arch == "qwen2"


def test_five_hundred_files_in_a_second(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for number in range(N_FILES):
        write_tiny(folder / f"model-{number:03}.gguf", "llama" if number % 2 else "unheard-of", number)
    assert len(scan(catalogue_of(tmp_path), folder)[-1]) == N_FILES
    catalogue = catalogue_of(tmp_path)
    began = time.thread_time()
    (listed,) = scan(catalogue, folder)
    assert time.thread_time() - began < 1.0
    assert len(listed) == N_FILES


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"null", b"[]", b'{"version": 1}', b'{"version": 1, "files": [{"key": ["a", 1]}]}', b"\xff"]
)
def test_a_damaged_cache_is_only_slow(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(damage)
    assert load_cache(path) == {}


def test_a_cache_of_other_fields_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DATA / "llama" / "model.gguf", folder / "a.gguf")
    scan(catalogue_of(tmp_path), folder)
    path = tmp_path / "cache" / "models.json"
    known = load_cache(path)
    assert known
    for old, new in (
        ('"note"', '"not"'),
        ('"n_params": ', '"n_params": "x" , "y": '),
        ('"version": 1', '"version": 0'),
    ):
        save_cache(path, known)
        path.write_text(path.read_text().replace(old, new))
        assert load_cache(path) == {}


def test_a_file_that_goes_while_it_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    shutil.copy(DATA / "llama" / "model.gguf", path)
    entry = entries.read_entry(FoundFile(path, "", "here"))
    assert entry is not None
    path.unlink()
    judged = entries.judge_entry(entry)
    assert judged is not None
    assert judged.problem
