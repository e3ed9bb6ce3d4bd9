"""Colours that can be read, icons that are there, and one table of actions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QKeySequence, QPalette
from PySide6.QtWidgets import QApplication

from app.actions import ACTIONS, When
from app.icons import app_icon, icon_pixmap
from app.models import ChatController
from app.theme import DARK, LIGHT, ZOOM_STEPS, Colours, Theme, ThemeMode, palette_of, style_sheet
from app.widgets.find_bar import FindBar
from app.windows.chat_commands import ChatCommands
from app.windows.chat_files import ChatFiles
from app.windows.dialogs import Dialogs
from app.windows.main_window import MainWindow

GROUNDS = ("ground", "side", "raised", "tint", "code", "hover", "selected")
PAIRS = [
    *((text, ground) for text in ("text", "quiet") for ground in GROUNDS),
    *(("out", ground) for ground in ("ground", "raised", "tint", "code")),
    *(("danger", ground) for ground in ("ground", "raised")),
    *(("accent", ground) for ground in ("ground", "raised", "tint")),
    ("on_accent", "accent"),
    ("on_selection", "selection"),
    ("on_found", "found"),
    *((name, "code") for name in Colours.__dataclass_fields__ if name.startswith("code_")),
]


OWNERS: dict[str, type] = {
    "": MainWindow,
    "controller": ChatController,
    "theme": Theme,
    "commands": ChatCommands,
    "dialogs": Dialogs,
    "files": ChatFiles,
    "find_bar": FindBar,
}


def luminance(colour: str) -> float:
    c = QColor(colour)
    parts = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (c.redF(), c.greenF(), c.blueF())]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a: str, b: str) -> float:
    """Source: WCAG 2.2, contrast ratio."""
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    theme = Theme(qapp, ThemeMode.LIGHT)
    yield theme
    theme.set_zoom(1.0)
    theme.set_mode(ThemeMode.LIGHT)
    theme.deleteLater()


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_can_be_read(colours: Colours) -> None:
    low = {
        pair: round(ratio, 2)
        for pair in PAIRS
        if (ratio := contrast(getattr(colours, pair[0]), getattr(colours, pair[1]))) < 4.5
    }
    assert not low
    for ground in ("ground", "side", "raised"):
        assert contrast(colours.strong_line, getattr(colours, ground)) >= 3.0, "a frame that marks a control"


def test_modes_and_the_system(theme: Theme, qapp: QApplication) -> None:
    assert theme.colours is LIGHT
    theme.set_mode(ThemeMode.DARK)
    assert theme.is_dark
    assert qapp.palette().color(QPalette.ColorRole.Window) == QColor(DARK.ground)
    theme.set_mode(ThemeMode.SYSTEM)
    assert theme.is_dark == (qapp.styleHints().colorScheme() == Qt.ColorScheme.Dark)


def test_zoom_goes_by_steps_and_has_ends(theme: Theme) -> None:
    size = theme.text_font().pixelSize()
    theme.zoom_in()
    assert theme.text_font().pixelSize() > size
    for _ in range(20):
        theme.zoom_in()
    assert theme.zoom == ZOOM_STEPS[-1]
    for _ in range(20):
        theme.zoom_out()
    assert theme.zoom == ZOOM_STEPS[0]


def test_the_style_sheet_is_small_and_complete() -> None:
    source = files("resources.themes").joinpath("base.qss").read_text(encoding="utf-8")
    assert source.count("\n") <= 150
    assert not re.search(r"#[0-9a-f]{6}", source, re.IGNORECASE)
    assert "$" not in style_sheet(LIGHT, 1.0)


def test_the_palette_has_a_grey_for_what_is_disabled() -> None:
    palette = palette_of(DARK)
    assert palette.color(QPalette.ColorGroup.Disabled, QPalette.ColorRole.Text) == QColor(DARK.out)


def test_widgets_name_no_colour() -> None:
    literal = re.compile(r"#[0-9a-fA-F]{6}\b|QColor\(\d|GlobalColor\.(?!transparent)")
    for folder in ("widgets", "windows"):
        for path in (files("app").joinpath(folder)).rglob("*.py"):  # type: ignore[attr-defined]
            assert not literal.search(path.read_text()), path


def test_icons_are_drawn(qapp: QApplication) -> None:
    names = [f.name.removesuffix(".svg") for f in files("resources.icons").iterdir() if f.name.endswith(".svg")]
    assert len(names) > 10
    for name in names:
        image = icon_pixmap(name, "#ff0000", 20, 2.0).toImage()
        assert image.width() == 40
        assert any(image.pixelColor(x, y).alpha() > 100 for x in range(40) for y in range(40)), name
    assert not app_icon().isNull()


def test_the_table_of_actions() -> None:
    ids = [spec.id for spec in ACTIONS]
    assert len(set(ids)) == len(ids)
    keys = [QKeySequence(key) for spec in ACTIONS for key in spec.keys]
    assert len({key.toString() for key in keys}) == len(keys)
    assert all(not key.isEmpty() for key in keys)
    for spec in ACTIONS:
        owner, _, method = spec.slot.rpartition(".")
        assert callable(getattr(OWNERS[owner], method)), spec.id
    bare = {key for spec in ACTIONS for key in spec.keys if key in ("Backspace", "Del", "Delete")}
    assert not bare
    assert all((When.ALWAYS in When.BUSY, When.BUSY not in When.IDLE))
