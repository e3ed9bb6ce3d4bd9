from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.messages import Sampling
from app.settings import Settings, data_folder


def test_values_survive_and_are_typed(qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "settings.ini"
    first = Settings(path)
    first.model_folders = ("/a b", "/ü")
    first.n_ctx = 4096
    first.temperature = 0.25
    first.window_geometry = b"\x00\x01\xff"
    first.is_sidebar_visible = False
    first.last_model = "/models/x, y.gguf"
    first.sync()
    second = Settings(path)
    assert second.model_folders == ("/a b", "/ü")
    assert second.n_ctx == 4096
    assert second.sampling() == Sampling(temperature=0.25)
    assert second.window_geometry == b"\x00\x01\xff"
    assert second.is_sidebar_visible is False
    assert second.last_model == "/models/x, y.gguf"
    second.model_folders = ("/one",)
    second.sync()
    assert Settings(path).model_folders == ("/one",)


def test_nonsense_in_the_file_reads_as_the_default_or_the_nearest_end(qtbot: QtBot, tmp_path: Path) -> None:
    path = tmp_path / "settings.ini"
    path.write_text("[sampling]\ntemperature=warm\ntop_k=-5\nmin_p=nan\n[view]\ntheme=pink\nsidebar=7\nzoom=100000\n")
    settings = Settings(path)
    assert settings.temperature == 0.8
    assert settings.top_k == 0
    assert settings.min_p == 0.05
    assert settings.theme == "system"
    assert settings.is_sidebar_visible is True
    assert settings.zoom == 300


def test_a_change_is_told_once(qtbot: QtBot, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "settings.ini")
    with qtbot.waitSignal(settings.changed, check_params_cb=lambda key: key == "view/theme"):
        settings.theme = "dark"
    with qtbot.assertNotEmitted(settings.changed):
        settings.theme = "dark"


def test_the_data_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CAUSERIE_DATA", str(tmp_path / "env"))
    assert data_folder() == tmp_path / "env"
    assert data_folder(str(tmp_path / "given")) == tmp_path / "given"
    monkeypatch.delenv("CAUSERIE_DATA")
    assert data_folder().name == "causerie"
