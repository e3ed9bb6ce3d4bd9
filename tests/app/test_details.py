"""What the details view says of a file, and whether a file is what its source says."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.bridge.catalogue_client import CatalogueClient
from app.bridge.details import SHOWN_CHARS, read_details, shown, source_hash, verify
from app.bridge.messages import ModelVerified
from app.models import ModelCatalogue
from app.windows.model_details import ModelDetailsWindow

TINY = Path(__file__).parents[1] / "data" / "llama" / "model.gguf"


def test_all_that_a_file_says() -> None:
    details = read_details(TINY)
    assert not details.problem
    about = {row.name: row.value for row in details.about}
    assert about["Architecture"] == "llama"
    assert about["Tokenizer"] == "llama, 512"
    assert about["Bytes"] == f"{TINY.stat().st_size:,}"
    keys = {row.name for row in details.metadata}
    assert {"general.architecture", "llama.block_count", "tokenizer.ggml.tokens"} <= keys
    assert details.template
    assert "How tall is a giraffe?" in details.sample
    assert details.tensors


def test_damaged_files_say_why(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(TINY.read_bytes()[:5000])
    details = read_details(path)
    assert details.problem
    assert details.metadata == ()
    assert read_details(tmp_path / "none").problem


def test_long_values_are_shortened() -> None:
    assert shown("x" * 9999).startswith("x" * SHOWN_CHARS + "…")
    assert shown(3) == "3"


def test_where_a_hash_is_kept(tmp_path: Path) -> None:
    digest = hashlib.sha256(TINY.read_bytes()).hexdigest()
    blob = tmp_path / "blobs" / digest
    blob.parent.mkdir()
    shutil.copy(TINY, blob)
    link = tmp_path / "model.gguf"
    link.symlink_to(blob)
    ollama = tmp_path / f"sha256-{digest}"
    shutil.copy(TINY, ollama)
    jan = tmp_path / "jan" / "model.gguf"
    jan.parent.mkdir()
    shutil.copy(TINY, jan)
    (jan.parent / "model.yml").write_text(f"name: x\nmodel_sha256: {digest.upper()}\n")
    assert [source_hash(path) for path in (blob, link, ollama, jan, TINY)] == [digest] * 4 + [""]
    shares: list[float] = []
    assert verify(link, lambda: False, shares.append) == ModelVerified(link, digest, digest)
    assert shares[-1] == 1.0
    damaged = bytearray(blob.read_bytes())
    damaged[-1] ^= 1
    blob.write_bytes(bytes(damaged))
    assert not verify(link, lambda: False, shares.append).is_same
    assert verify(link, lambda: True, shares.append).sha256 == ""
    assert verify(tmp_path / "none", lambda: False, shares.append).problem


@pytest.fixture
def catalogue(qtbot: QtBot) -> Iterator[ModelCatalogue]:
    model, client = ModelCatalogue(), CatalogueClient()
    model.details_requested.connect(client.describe)
    model.verify_requested.connect(client.verify)
    client.details_read.connect(model.details_read)
    client.verify_progressed.connect(model.verify_progressed)
    client.verified.connect(model.verified)
    yield model
    assert client.shutdown(5000)


def test_the_window_shows_them_and_verifies(catalogue: ModelCatalogue, qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / hashlib.sha256(TINY.read_bytes()).hexdigest()
    shutil.copy(TINY, path)
    parent = QWidget()
    qtbot.addWidget(parent)
    window = ModelDetailsWindow(catalogue, str(path), parent)
    qtbot.waitUntil(lambda: window._about_tree.topLevelItemCount() > 5)
    assert "giraffe" in window._sample_edit.toPlainText()
    window._verify_button.click()
    qtbot.waitUntil(lambda: "is what its source says" in window._status_label.text())
    assert window._verify_button.isEnabled()
    path.write_bytes(path.read_bytes()[:-1] + b"\x00\x01")
    window._verify_button.click()
    qtbot.waitUntil(lambda: "damaged" in window._status_label.text())
