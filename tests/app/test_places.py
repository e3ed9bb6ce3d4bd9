from __future__ import annotations

from pathlib import Path

import pytest

from app.bridge import places
from app.bridge.free_memory import free_memory_bytes
from app.bridge.programs import Home
from app.launch import DEFAULT_MODEL


@pytest.mark.parametrize(
    ("name", "is_model"),
    [
        *(("a.gguf", True), ("A.GGUF", True), ("a-00001-of-00003.gguf", True), ("a-00002-of-00003.gguf", False)),
        *(("mmproj-a.gguf", False), ("incomplete-a.gguf", False), ("a.bin", False), ("._a.gguf", False)),
    ],
)
def test_which_files_are_models(name: str, is_model: bool) -> None:
    assert places.is_model_name(name) is is_model


def test_each_file_is_listed_once_however_it_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "default_models_folder", lambda: tmp_path / "none")
    folder = tmp_path / "models"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "a.gguf").write_bytes(b"x")
    (folder / "link.gguf").symlink_to(folder / "deep" / "er" / "a.gguf")
    folders = (str(folder), str(folder / "deep"), str(tmp_path / "gone"))
    found = list(places.all_models(folders, Home("linux", tmp_path / "nobody", {})))
    assert len(found) == 1


def test_the_model_to_start_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "build"
    monkeypatch.setattr(places, "default_models_folder", lambda: folder)
    monkeypatch.setattr(places, "DEFAULT_PACKAGE", "no_such_package_at_all")
    assert places.default_model("") is None
    folder.mkdir()
    (folder / "z.gguf").write_bytes(b"x")
    assert places.default_model("") == folder / "z.gguf"
    (folder / DEFAULT_MODEL).write_bytes(b"x")
    assert places.default_model("/gone.gguf") == folder / DEFAULT_MODEL
    assert places.default_model(str(folder / "z.gguf")) == folder / "z.gguf"


def test_free_memory_is_told() -> None:
    assert 2**26 < free_memory_bytes() < 2**50
