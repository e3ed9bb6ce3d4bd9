"""A whole window on a controller with a scripted engine, as the tests of the window drive it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication

from app.settings import Settings
from app.theme import Theme, ThemeMode
from app.windows.main_window import MainWindow
from tests.app.fakes import make_bench


class Desk:
    """A window with what stands behind it."""

    def __init__(self, folder: Path, app: QApplication) -> None:
        self.owner = QObject()
        self.controller, self.engine, self.store = make_bench(folder, self.owner)
        self.notices: list[str] = []
        self.controller.notice.connect(self.notices.append)
        self.settings = Settings(folder / "window.ini", self.owner)
        self.theme = Theme(app, ThemeMode.LIGHT, parent=self.owner)
        self.window = MainWindow(self.controller, self.settings, self.theme)

    def say(self, text: str, answer: str) -> None:
        self.controller.send(text)
        self.answer(answer)

    def answer(self, text: str) -> None:
        job_id = self.engine.last_job_id
        self.engine.start(job_id)
        self.engine.say(job_id, text)
        self.engine.finish(job_id)

    def texts(self) -> list[str]:
        return [item.text for item in self.controller.conversation.items()]

    def versions(self) -> list[tuple[int, int]]:
        return [(item.version, item.n_versions) for item in self.controller.conversation.items()]

    def id_of(self, i: int) -> int:
        return self.controller.conversation.items()[i].id

    def prompt(self) -> list[str]:
        return [m.text for m in self.engine.prompts[self.engine.last_job_id]]

    def press(self, i: int, name: str) -> None:
        """Press a button among the actions of a message."""
        view = self.window._view
        view._hover(i)
        assert view._actions is not None
        button = next(b for b in view._actions.findChildren(QAbstractButton) if b.accessibleName() == name)
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)

    def key(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        focus = self.window.focusWidget()
        QTest.keyClick(focus if focus is not None else self.window, key, modifiers)

    def write(self, text: str) -> None:
        self.window._composer.setFocus()
        QTest.keyClicks(self.window._composer._edit, text)
        self.key(Qt.Key.Key_Return)
