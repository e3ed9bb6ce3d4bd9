"""The look of the program: two sets of colours, the fonts, and what Qt is told of them.

Stands beside the widgets: they ask `Theme` for a colour by its part in the design and never name one themselves.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from importlib.resources import files
from string import Template

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

GRID = 8  # px; every margin and gap is a multiple or a half of it
SIDEBAR_WIDTH = 260  # px
COLUMN_WIDTH = 760  # px, the widest that a line of text may be
RADIUS = 12  # px, corners of the user's turn and of the composer
LINE_HEIGHT_PERCENT = 150

ZOOM_STEPS = (0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
_UI_PX, _TEXT_PX, _CODE_PX, _QUIET_PX, _HEADING_PX = 14, 15, 13, 12, 20


@dataclass(frozen=True, slots=True)
class Colours:
    """One colour for each part of the design, as #rrggbb.

    Attributes:
        ground: behind the conversation; side: behind the list of chats; raised: composer, menus, dialogs.
        tint: behind the user's turn; code: behind code; hover, selected: rows and buttons; line: borders.
        text, quiet: words on any of the grounds above; out: words that left the context, on `ground` and `tint`.
        accent: the one accent; on_accent: words on it.
        selection, on_selection: marked text; found, on_found: text that was searched for; danger: what went wrong, on any ground.
        code_*: classes of tokens in code, on `code`.
    """

    ground: str
    side: str
    raised: str
    tint: str
    code: str
    hover: str
    selected: str
    line: str
    strong_line: str
    text: str
    quiet: str
    out: str
    accent: str
    on_accent: str
    selection: str
    on_selection: str
    found: str
    on_found: str
    danger: str
    code_keyword: str
    code_string: str
    code_comment: str
    code_number: str
    code_name: str
    code_type: str


LIGHT = Colours(
    ground="#ffffff",
    side="#f4f6f5",
    raised="#ffffff",
    tint="#edf3f1",
    code="#f5f6f6",
    hover="#e8edeb",
    selected="#dde7e4",
    line="#dfe4e2",
    strong_line="#84908c",
    text="#1c2220",
    quiet="#57605d",
    out="#656e6b",
    accent="#0b6e64",
    on_accent="#ffffff",
    selection="#bfe3dc",
    on_selection="#10201d",
    found="#f6e3a1",
    on_found="#241d05",
    danger="#b3261e",
    code_keyword="#8a2c6b",
    code_string="#0b6b3a",
    code_comment="#626c69",
    code_number="#8f4a00",
    code_name="#1f5fa8",
    code_type="#6a4aae",
)

DARK = Colours(
    ground="#1b1e1d",
    side="#151817",
    raised="#232726",
    tint="#283230",
    code="#232726",
    hover="#2a302e",
    selected="#2d3a37",
    line="#343a38",
    strong_line="#78837f",
    text="#e4e8e6",
    quiet="#a3aca9",
    out="#939c98",
    accent="#63c7b8",
    on_accent="#07211d",
    selection="#1f5a52",
    on_selection="#f0f6f4",
    found="#5c4a12",
    on_found="#fbf3d8",
    danger="#ff9a91",
    code_keyword="#e49bcb",
    code_string="#8fd19e",
    code_comment="#98a29e",
    code_number="#e8b27a",
    code_name="#8cbcf2",
    code_type="#bda6f0",
)


class ThemeMode(Enum):
    """Which of the two sets of colours is used."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class Theme(QObject):
    """Colours and fonts in use; follows the system until told otherwise.

    Attributes:
        colours: the set in use.
        is_dark: it is the dark one.
        zoom: factor on every font, one of `ZOOM_STEPS`.

    Signals:
        changed: colours or fonts differ; views lay out and paint again.

    Thread: GUI thread.
    """

    changed = Signal()

    def __init__(
        self, app: QApplication, mode: ThemeMode = ThemeMode.SYSTEM, zoom: float = 1.0, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._app = app
        self._mode = mode
        self.zoom = min(max(zoom, ZOOM_STEPS[0]), ZOOM_STEPS[-1])
        self.is_dark = False
        self.colours = LIGHT
        app.setStyle("Fusion")
        self._system_font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
        app.styleHints().colorSchemeChanged.connect(self._on_scheme_changed)
        self._apply()

    @property
    def mode(self) -> ThemeMode:
        """What decides between light and dark."""
        return self._mode

    def set_mode(self, mode: ThemeMode) -> None:
        """Choose light, dark, or what the system has."""
        if mode != self._mode:
            self._mode = mode
            self._apply()

    def use_system(self) -> None:
        """Use the colours that the system has."""
        self.set_mode(ThemeMode.SYSTEM)

    def use_light(self) -> None:
        """Use light colours."""
        self.set_mode(ThemeMode.LIGHT)

    def use_dark(self) -> None:
        """Use dark colours."""
        self.set_mode(ThemeMode.DARK)

    def set_zoom(self, zoom: float) -> None:
        """Set the factor on every font, limited to the range of `ZOOM_STEPS`."""
        zoom = min(max(zoom, ZOOM_STEPS[0]), ZOOM_STEPS[-1])
        if zoom != self.zoom:
            self.zoom = zoom
            self._apply()

    def zoom_in(self) -> None:
        """Go to the next larger step."""
        self.set_zoom(next((z for z in ZOOM_STEPS if z > self.zoom), ZOOM_STEPS[-1]))

    def zoom_out(self) -> None:
        """Go to the next smaller step."""
        self.set_zoom(next((z for z in reversed(ZOOM_STEPS) if z < self.zoom), ZOOM_STEPS[0]))

    def zoom_reset(self) -> None:
        """Go back to the normal size."""
        self.set_zoom(1.0)

    def colour(self, name: str) -> QColor:
        """Return the colour of one part of the design."""
        return QColor(getattr(self.colours, name))

    def ui_font(self) -> QFont:
        """Return the font of controls and lists."""
        return self._sized(self._system_font, _UI_PX)

    def text_font(self) -> QFont:
        """Return the font of the conversation."""
        return self._sized(self._system_font, _TEXT_PX)

    def quiet_font(self) -> QFont:
        """Return the font of the status line, labels and headings of groups."""
        return self._sized(self._system_font, _QUIET_PX)

    def code_font(self) -> QFont:
        """Return the font of code, each letter of the same width."""
        font = self._sized(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont), _CODE_PX)
        font.setStyleHint(QFont.StyleHint.Monospace)
        return font

    def scaled(self, px: float) -> int:
        """Return a length that grows with the fonts, in px."""
        return round(px * self.zoom)

    def _sized(self, base: QFont, px: int) -> QFont:
        font = QFont(base)
        font.setPixelSize(self.scaled(px))
        return font

    def _on_scheme_changed(self) -> None:
        if self._mode == ThemeMode.SYSTEM:
            self._apply()

    def _apply(self) -> None:
        system_is_dark = self._app.styleHints().colorScheme() == Qt.ColorScheme.Dark
        self.is_dark = self._mode == ThemeMode.DARK or (self._mode == ThemeMode.SYSTEM and system_is_dark)
        self.colours = DARK if self.is_dark else LIGHT
        self._app.setPalette(palette_of(self.colours))
        self._app.setFont(self.ui_font())
        self._app.setStyleSheet(style_sheet(self.colours, self.zoom))
        self.changed.emit()


def palette_of(colours: Colours) -> QPalette:
    """Return the colours as the roles that Qt's own widgets use."""
    role = QPalette.ColorRole
    roles = {
        role.Window: colours.ground,
        role.WindowText: colours.text,
        role.Base: colours.raised,
        role.AlternateBase: colours.side,
        role.Text: colours.text,
        role.PlaceholderText: colours.quiet,
        role.Button: colours.raised,
        role.ButtonText: colours.text,
        role.BrightText: colours.danger,
        role.ToolTipBase: colours.raised,
        role.ToolTipText: colours.text,
        role.Highlight: colours.selection,
        role.HighlightedText: colours.on_selection,
        role.Link: colours.accent,
        role.LinkVisited: colours.accent,
        role.Accent: colours.accent,
        role.Light: colours.raised,
        role.Midlight: colours.hover,
        role.Mid: colours.line,
        role.Dark: colours.strong_line,
        role.Shadow: colours.strong_line,
    }
    palette = QPalette()
    for key, value in roles.items():
        palette.setColor(key, QColor(value))
    for key in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, key, QColor(colours.out))
    return palette


def style_sheet(colours: Colours, zoom: float) -> str:
    """Return the style sheet of the program with the colours and lengths filled in."""
    source = files("resources.themes").joinpath("base.qss").read_text(encoding="utf-8")
    sizes = {"quiet_px": _QUIET_PX, "text_px": _TEXT_PX, "heading_px": _HEADING_PX}
    lengths = {name: round(px * zoom) for name, px in sizes.items()}
    return Template(source).substitute(asdict(colours), **lengths)
