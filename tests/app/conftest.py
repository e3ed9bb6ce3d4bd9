"""A window on a scripted engine, and a whole program on one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.theme import ThemeMode
from tests.app.desk import Desk
from tests.app.fake_engine import FakeEngine
from tests.app.program import Program


@pytest.fixture
def desk(qtbot: QtBot, qapp: QApplication, tmp_path: Path) -> Iterator[Desk]:
    """A window that is shown; the theme is as before when it goes."""
    desk = Desk(tmp_path, qapp)
    qtbot.addWidget(desk.window)
    desk.window.show()
    qtbot.waitExposed(desk.window)
    desk.window.activateWindow()
    yield desk
    desk.theme.set_zoom(1.0)
    desk.theme.set_mode(ThemeMode.LIGHT)


@pytest.fixture
def program(qtbot: QtBot, tmp_path: Path) -> Iterator[Program]:
    """A program that runs; closing it leaves no session open."""
    (tmp_path / "data").mkdir()
    program = Program(qtbot, tmp_path, FakeEngine())
    yield program
    program.close()
    assert program.engine.open_sessions == 0
