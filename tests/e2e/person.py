"""Somebody at the window: types, presses keys, reads what is shown, closes and opens the program again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QPlainTextEdit

from app.application import Application
from app.models import MessageItem, Phase

PATIENCE_S = 60.0
"""A wait longer than this fails; a machine may be busy with other things."""


class Person:
    """Drives the real program through its window.

    Attributes:
        program: the one that runs now.
    """

    def __init__(self, app: QApplication, folder: Path, model: Path) -> None:
        self._app, self._folder, self._model = app, folder, model
        self.program = self._open()

    # What a person does

    def write(self, text: str) -> None:
        """Type into the composer and press Enter."""
        edit = self.program.window.findChild(QPlainTextEdit, "composer_edit")
        assert isinstance(edit, QPlainTextEdit)
        QTest.keyClicks(edit, text)
        QTest.keyClick(edit, Qt.Key.Key_Return)

    def press(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        """Press a key in the window."""
        QTest.keyClick(self._app.focusWidget() or self.program.window, key, modifier)

    def click(self, name: str) -> None:
        """Click a button by its name; it works in a window that no window manager has made the active one."""
        button = self.program.window.findChild(QAbstractButton, name)
        assert isinstance(button, QAbstractButton)
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)

    def ask(self, text: str) -> str:
        """Write a message and wait for the whole reply."""
        n = len(self.items())
        self.write(text)
        self.wait(lambda: len(self.items()) >= n + 2, "the message to be shown")
        self.wait(self.is_idle, "the end of the reply")
        return self.items()[-1].text

    def begin(self, text: str, n_chars: int = 20) -> None:
        """Write a message and wait for the first characters of the reply."""
        n = len(self.items())
        self.write(text)
        self.wait(lambda: len(self.items()) >= n + 2 and len(self.items()[-1].text) >= n_chars, "the first characters")

    def new_chat(self) -> None:
        """Press Ctrl+N."""
        self.press(Qt.Key.Key_N, Qt.KeyboardModifier.ControlModifier)
        self.wait(lambda: self.program.controller.conversation.chat_id is None, "the new chat")

    def open_chat(self, chat_id: int) -> None:
        """Open a chat."""
        self.program.controller.open_chat(chat_id)
        self.wait(lambda: self.program.controller.conversation.chat_id == chat_id, "the chat to open")

    def close(self) -> float:
        """Close the window and end the program; returns the seconds that took."""
        began = time.monotonic()
        self.program.window.close()
        assert self.program.shutdown(), "a thread did not end"
        elapsed = time.monotonic() - began
        self.program.window.deleteLater()
        self.program.deleteLater()
        self._app.sendPostedEvents(None, int(QEvent.Type.DeferredDelete.value))
        return elapsed

    def reopen(self) -> None:
        """Start the program again and wait until the model and the last chat are there."""
        self.program = self._open()

    # What a person sees

    def items(self) -> list[MessageItem]:
        """The messages shown."""
        return list(self.program.controller.conversation.items())

    def phase(self) -> Phase:
        """What the model does."""
        return self.program.controller.generation.phase

    def is_idle(self) -> bool:
        """Whether a message can be sent."""
        return self.phase() is Phase.IDLE

    def wait(self, condition: Callable[[], bool], what: str) -> float:
        """Let the program run until something is so; returns the seconds that took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < PATIENCE_S, f"waited in vain for {what}"
            QTest.qWait(5)
        return time.monotonic() - began

    def look(self, seconds: float) -> None:
        """Do nothing for a while."""
        QTest.qWait(int(1000 * seconds))

    def photograph(self, path: Path) -> None:
        """Keep a picture of the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        QTest.qWait(50)
        assert self.program.window.grab().save(str(path))

    def _open(self) -> Application:
        program = Application(self._app, self._folder)
        program.settings.temperature = 0.0
        self.program = program
        program.start(str(self._model))
        self.wait(self.is_idle, "the model")
        last = program.settings.last_chat or None
        self.wait(lambda: program.controller.conversation.chat_id == last, "the last chat")
        return program
