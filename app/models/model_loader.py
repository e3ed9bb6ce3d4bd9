"""Which model is loaded, and what a person should know when one does not load."""

from __future__ import annotations

from pathlib import Path

from app.bridge.messages import JobFailed, ModelInfo, ModelLoading
from app.bridge.places import model_name
from app.launch import default_models_folder
from app.models.ports import Engine
from app.models.status import StatusBoard
from app.settings import Settings


class ModelLoader:
    """Asks for models and keeps the board and the settings up to date.

    Attributes:
        path: of the model that is loaded or being loaded; "" before the first.

    Thread: GUI thread.
    """

    def __init__(self, engine: Engine, settings: Settings, board: StatusBoard) -> None:
        self.path = ""
        self._good_path = ""
        self._engine, self._settings, self._board = engine, settings, board

    def load(self, path: str) -> None:
        """Load a model in the background; the one before is let go."""
        self.path = path
        self._board.set_loading(model_name(Path(path)), 0.0)
        self._engine.load_model(path, self._settings.n_threads or None, self._settings.engine_options())

    def on_loading(self, event: ModelLoading) -> None:
        """Show how far loading is."""
        self._board.set_loading(model_name(Path(self.path)), event.fraction)

    def on_loaded(self, info: ModelInfo) -> None:
        """Remember the model for the next start, and its folder for the picker."""
        self._board.set_model(info)
        self._good_path = self._settings.last_model = info.path
        # Where one model lies there are others: the picker lists them from now on.
        folder = str(Path(info.path).parent)
        if folder not in self._settings.model_folders and folder != str(default_models_folder()):
            self._settings.model_folders = (*self._settings.model_folders, folder)

    def on_failed(self, event: JobFailed) -> None:
        """Go back to the model before."""
        self._board.set_model(None, event.error.sentence)
        if self._good_path and self._good_path != self.path:
            self.load(self._good_path)
