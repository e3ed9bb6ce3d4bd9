from typing import Any

import numpy as np
import numpy.typing as npt

F32Array = npt.NDArray[np.float32]

class Attention:
    def __init__(
        self,
        isa: int,
        params: dict[str, Any],
        sinks: F32Array | None = None,
        freq_factors: F32Array | None = None,
        rel_bias: F32Array | None = None,
    ) -> None: ...
    def store(self, k: F32Array, v: F32Array, pages: npt.NDArray[np.uint64], cells: npt.NDArray[np.int32]) -> None: ...
    def run(
        self,
        q: F32Array,
        pos: npt.NDArray[np.int32],
        segments: npt.NDArray[np.int64],
        runs: npt.NDArray[np.uint8],
        n_threads: int = 1,
        n_ctx: int = 4096,
        is_reversed: bool = False,
    ) -> tuple[F32Array, tuple[int, int]]: ...
    def measure(
        self,
        q: F32Array,
        pos: npt.NDArray[np.int32],
        segments: npt.NDArray[np.int64],
        runs: npt.NDArray[np.uint8],
        n_threads: int,
        n_ctx: int,
        n_repeats: int,
    ) -> list[float]: ...
