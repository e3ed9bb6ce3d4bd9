"""Stand-ins for tests of the window's parts."""

from __future__ import annotations

from PySide6.QtCore import QObject

from app.models import ChatController


def make_controller(parent: QObject | None = None) -> ChatController:
    """Return a controller that needs no engine and no disk."""
    return ChatController(parent)
