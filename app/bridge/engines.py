"""Which engine a model is for: this program's own, or another program's behind an endpoint.

Imported in the engine thread only, since it reads the engine's modules.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.bridge.local_engine import LocalEngine
from app.bridge.messages import EngineOptions, UserError
from app.bridge.port import ChatModel
from app.bridge.remote_engine import RemoteModel
from app.remote.endpoint import SUFFIX


class Engines:
    """Loads models here, and opens those that run elsewhere by the file that names them."""

    def __init__(self) -> None:
        self._local = LocalEngine()

    def load_model(
        self, path: Path, n_threads: int | None, options: EngineOptions, progress: Callable[[float], None]
    ) -> ChatModel:
        """Load or open a model. Raises: EngineError, OSError, MemoryError, EndpointError."""
        if path.name.endswith(SUFFIX):
            return RemoteModel(path)
        return self._local.load_model(path, n_threads, options, progress)

    def explain(self, error: BaseException) -> UserError:
        """Return what a person should read about an error."""
        return self._local.explain(error)
