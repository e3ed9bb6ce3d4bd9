"""Pictures of every window in both themes, from a scripted engine: `python -m tests.screenshots docs/screenshots`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QDeadlineTimer, QEvent
from PySide6.QtWidgets import QApplication, QDialog, QWidget

from app.bridge.context_view import ContextRow, ContextView
from app.bridge.fetch_client import FetchClient
from app.bridge.messages import DetailRow, ModelDetails, ModelEntry, ModelsFound
from app.theme import ThemeMode
from app.windows.fetch_window import FetchWindow
from app.windows.main_window import MainWindow
from app.windows.model_details import ModelDetailsWindow
from app.windows.remote_dialog import RemoteDialog
from tests.app.desk import Desk
from tests.app.view_help import REPLY

SETTLE_MS = 400
"""Code is coloured in slices, and chats are searched a moment after the last key."""

GB = 1 << 30
MODELS = (
    ModelEntry(
        *(Path("/models/SmolLM2-135M.gguf"), "SmolLM2 135M Instruct", "llama", 135_000_000, "Q4_1", 8192, 90 << 20),
        *(350 << 20,),
        tok_s=96.0,
    ),
    ModelEntry(
        Path("/models/gemma-3-270m.gguf"), "Gemma 3 270M", "gemma3", 268_000_000, "Q4_K_M", 32768, GB // 4, GB // 2
    ),
    ModelEntry(
        Path("/models/Qwen2.5-72B.gguf"), "Qwen2.5 72B", "qwen2", 72_000_000_000, "Q5_K_M", 131072, 50 * GB, 55 * GB
    ),
    ModelEntry(Path("/models/half.gguf"), "half.gguf", problem="It ends in the middle of a tensor."),
)


def settle(app: QApplication) -> None:
    """Let timers and paints come due."""
    deadline = QDeadlineTimer(SETTLE_MS)
    while not deadline.hasExpired():
        app.processEvents()


class Studio:
    """A window with a chat in it, and the windows that open over it.

    Attributes:
        shots: what is taken, by the name of its picture.
    """

    def __init__(self, app: QApplication, folder: Path) -> None:
        self._app = app
        self._folder = folder
        self._desk = Desk(folder, app)
        self._desk.window.resize(1160, 780)
        self._desk.window.show()
        self._desk.controller.on_models_found(ModelsFound(MODELS, 15 * GB))
        self._fetch = FetchClient("https://example.invalid")
        self.shots: dict[str, Callable[[], QWidget]] = {
            "empty": self._empty,
            "chat": self._chat,
            "find": self._find,
            "models": lambda: self._over("pick_model"),
            "details": self._details,
            "get_models": lambda: FetchWindow(
                self._fetch, self._desk.controller.catalogue, MODELS[0].path.parent, self._window
            ),
            "remote": lambda: RemoteDialog(self._folder, self._window),
            "context": self._context,
            "memory": lambda: self._over("memory"),
            "shortcuts": lambda: self._over("shortcuts"),
        }

    @property
    def _window(self) -> MainWindow:
        return self._desk.window

    def take(self, name: str, mode: ThemeMode, path: Path) -> None:
        """Write one picture."""
        self._desk.theme.set_mode(mode)
        shown = self.shots[name]()
        shown.show()
        settle(self._app)
        shown.grab().save(str(path))
        if shown is not self._window:
            shown.close()
        self._window.find_bar.close_search()

    def close(self) -> None:
        """End the threads of what was shown."""
        self._fetch.shutdown(1000)
        self._desk.window.close()
        self._desk.window.deleteLater()
        self._app.sendPostedEvents(None, int(QEvent.Type.DeferredDelete.value))

    def _empty(self) -> QWidget:
        self._window.new_chat()
        return self._window

    def _chat(self) -> QWidget:
        if not self._desk.controller.chats.rows():
            for question in ("Suggest a name for a cat", "How do I migrate a database?"):
                self._window.new_chat()
                self._desk.write(question)
                self._desk.answer(REPLY)
        self._desk.controller.open_chat(self._desk.controller.chats.rows()[0].chat_id)
        return self._window

    def _find(self) -> QWidget:
        self._chat()
        self._window.find_bar.open()
        self._window.find_bar._edit.setText("migration")
        return self._window

    def _details(self) -> QWidget:
        catalogue = self._desk.controller.catalogue
        window = ModelDetailsWindow(catalogue, str(MODELS[0].path), self._window)
        about = (
            DetailRow("Name", MODELS[0].name),
            DetailRow("Architecture", "llama"),
            DetailRow("Licence", "apache-2.0"),
        )
        catalogue.details_read.emit(ModelDetails(MODELS[0].path, about))
        return window

    def _context(self) -> QWidget:
        self._chat()
        dialog = self._over("inspector")
        items = self._desk.controller.conversation.items()
        rows = tuple(ContextRow(item.id, False, 40 * i, 40) for i, item in enumerate(items))
        view = ContextView(items[0].id, rows, "<|user|>How do I migrate…", "Q8_0", 40 * len(items), 8192, 1 << 20)
        self._desk.controller.rules.inspected.emit(view)
        return dialog

    def _over(self, action_id: str) -> QWidget:
        """Return the dialog that an action opens."""
        before = set(self._window.findChildren(QDialog))
        self._window._actions.action(action_id).trigger()
        shown = [d for d in self._window.findChildren(QDialog) if d not in before or d.isVisible()]
        return shown[-1]


def main(folder: Path) -> None:
    """Take all pictures into a folder."""
    app = QApplication([])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        studio = Studio(app, Path(data))
        for name in studio.shots:
            for mode in (ThemeMode.LIGHT, ThemeMode.DARK):
                studio.take(name, mode, folder / f"{name}_{mode.value}.png")
        studio.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
