"""The program on a scripted engine, as the tests of the application drive it."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.application import Application
from app.models import Phase
from tests.app.fake_engine import FakeEngine

PATIENCE_MS = 30_000


class Program:
    """A running program that can be closed and started again on the same folder."""

    def __init__(self, qtbot: QtBot, folder: Path, engine: FakeEngine) -> None:
        self._qtbot, self.folder, self.engine = qtbot, folder, engine
        self.model = folder / "model.gguf"
        self.model.write_text("fine")
        self.app = self._start()

    def _start(self) -> Application:
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        program = Application(app, self.folder / "data", lambda: self.engine)
        with self._qtbot.waitSignal(program.controller.ready, timeout=PATIENCE_MS):
            program.start(str(self.model))
        last = program.settings.last_chat or None
        self._qtbot.waitUntil(lambda: program.controller.conversation.chat_id == last, timeout=PATIENCE_MS)
        self._qtbot.waitUntil(lambda: program.controller.generation.phase is Phase.IDLE, timeout=PATIENCE_MS)
        return program

    def close(self) -> None:
        self.app.window.close()
        began = time.monotonic()
        assert self.app.shutdown()
        assert time.monotonic() - began < 5
        self.app.window.deleteLater()
        self.app.deleteLater()
        QApplication.sendPostedEvents(None, int(QEvent.Type.DeferredDelete.value))

    def restart(self) -> None:
        self.close()
        self.app = self._start()

    def texts(self) -> list[tuple[str, str]]:
        return [(item.text, item.state) for item in self.app.controller.conversation.items()]

    def wait_idle(self) -> None:
        self._qtbot.waitUntil(lambda: self.app.controller.generation.phase is Phase.IDLE, timeout=PATIENCE_MS)

    def wait_words(self, n: int) -> None:
        self._qtbot.waitUntil(lambda: bool(self.texts()) and len(self.texts()[-1][0].split()) >= n, timeout=PATIENCE_MS)
