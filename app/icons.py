"""Icons of the program: its own line drawings, tinted with a colour when they are painted."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer


@lru_cache(maxsize=256)
def icon_pixmap(name: str, colour: str, size: int, ratio: float) -> QPixmap:
    """Return a drawing as a pixmap.

    Args:
        name: file name in `resources/icons`, without its ending.
        colour: what `currentColor` in the drawing becomes, as #rrggbb.
        size: width and height in device-independent pixels.
        ratio: device pixels for each of them.
    """
    source = files("resources.icons").joinpath(f"{name}.svg").read_text(encoding="utf-8")
    renderer = QSvgRenderer(QByteArray(source.replace("currentColor", colour).encode()))
    pixmap = QPixmap(round(size * ratio), round(size * ratio))
    pixmap.setDevicePixelRatio(ratio)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    renderer.render(painter, QRectF(0, 0, size, size))
    painter.end()
    return pixmap


def paint_icon(painter: QPainter, name: str, colour: QColor, rect: QRectF) -> None:
    """Paint a drawing in the middle of a rectangle, as large as its shorter side."""
    device = painter.device()
    size = int(min(rect.width(), rect.height()))
    pixmap = icon_pixmap(name, colour.name(), size, device.devicePixelRatio())
    painter.drawPixmap(rect.center() - QRectF(0, 0, size, size).center(), pixmap)


def app_icon() -> QIcon:
    """Return the icon of the program's windows."""
    icon = QIcon()
    for size in (16, 24, 32, 48, 64, 128, 256):
        icon.addPixmap(icon_pixmap("causerie", "none", size, 1.0))
    return icon
