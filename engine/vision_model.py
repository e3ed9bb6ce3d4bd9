"""`VisionModel`: an open mmproj file with its vision tower and weights. `engine.context.vision` computes with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from engine.arch.vision.base import VisionArch
from engine.arch.vision.registry import create_vision_arch
from engine.backend.cpu.stages import Weight
from engine.backend.threads import make_pool
from engine.errors import UnsupportedCallError
from engine.gguf import GGUFFile, open_gguf
from engine.graph.tensor import WeightInfo
from engine.weights import WeightStore, check_tensors


class VisionModel:
    """A vision tower's file, opened.

    Args:
        path: a GGUF file of architecture "clip".
        n_threads: threads for loading.

    Attributes:
        gguf: the reader.
        arch: what the tower is.
        weight_infos: shape and type of every weight in use, by name.
        load_ms: time it took to load.

    Raises:
        ModelFileError: a damaged file, or one without a vision tower.
        UnsupportedArchitectureError: a projector that is not known.
        OutOfMemoryError: weights that do not fit.
    """

    def __init__(self, path: str | Path, n_threads: int) -> None:
        began = time.perf_counter()
        self.gguf: GGUFFile = open_gguf(path)
        try:
            self.arch: VisionArch = create_vision_arch(self.gguf)
            tensors = check_tensors(self.gguf, self.arch.tensors())
            self.weight_infos: Mapping[str, WeightInfo] = MappingProxyType(
                {name: WeightInfo(info.shape, info.type) for name, info in tensors.items()}
            )
            self._weights: WeightStore | None = WeightStore(self.gguf, tensors, make_pool(n_threads))
        except BaseException:
            self.gguf.close()
            raise
        self.load_ms = 1000 * (time.perf_counter() - began)

    def weight(self, name: str) -> Weight:
        """A weight as the backend reads it. Raises: TensorMissingError; UnsupportedCallError: closed."""
        if self._weights is None:
            raise UnsupportedCallError("weight", "a vision model that was closed")
        return self._weights[name]

    def close(self) -> None:
        """Let go of the file and the weights. Contexts of the tower must be closed before."""
        self._weights = None
        self.gguf.close()
