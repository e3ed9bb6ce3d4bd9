"""qwen2vl_merger and qwen2.5vl_merger: the towers of Qwen2-VL and Qwen2.5-VL: images of any size, rotated heads.

Source: arXiv:2409.12191, arXiv:2502.13923; projector types of these names in mmproj files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.vision.base import VisionArch, build_mm, matrix, read_vision_hparams
from engine.errors import HparamError
from engine.graph import ops
from engine.graph.tensor import RopeSpec

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor

N_MERGE = 2  # Source: spatial_merge_size of every published model
N_BLOCKS_MAX = 4096  # of the largest image; larger ones are scaled down. Source: llama.cpp's limit for these models
WINDOW_PIXELS = 112  # Source: arXiv:2502.13923 2.1.1; files seldom say


class Qwen2VL(VisionArch):
    """Layer norms, a feed-forward without a gate, every patch sees all."""

    name = "qwen2vl_merger"
    n_axes = 3
    n_frames = 2

    def __init__(self, gguf: GGUFFile) -> None:
        n_merge = gguf.get_int("clip.vision.spatial_merge_size", N_MERGE, lo=1, hi=64)
        self.hparams = hp = read_vision_hparams(gguf, n_merge)
        if hp.n_embd_head % 4:
            reason = f"heads of {hp.n_embd_head} values cannot be rotated by row and column"
            raise HparamError("clip.vision.attention.head_count", reason, gguf.path)
        if gguf.get_bool("clip.use_silu", False):
            self.activation = "silu"
        else:
            self.activation = "gelu" if gguf.get_bool("clip.use_gelu", False) else "gelu_quick"

    def fitted(self, height: int, width: int) -> tuple[int, int]:
        """The nearest whole blocks, no more than N_BLOCKS_MAX of them in all."""
        size = self.hparams.block_size
        shrink = max(1.0, math.sqrt(height * width / (N_BLOCKS_MAX * size * size)))
        rounded = math.floor if shrink > 1.0 else round
        rows, columns = (min(max(1, rounded(n / shrink / size)), N_BLOCKS_MAX) for n in (height, width))
        return min(rows, N_BLOCKS_MAX // columns) * size, columns * size

    def projector_tensors(self) -> Iterator[TensorSpec]:
        """The merger's two matrices."""
        hp = self.hparams
        n_merged = hp.n_merge**2 * hp.n_embd
        yield from matrix("mm.0", n_merged, n_merged)
        yield from matrix("mm.2", hp.n_out, n_merged)

    def build_projector(self, g: GraphI, cur: Tensor) -> Tensor:
        """Two matrices with an exact GELU between them."""
        return build_mm(g, "mm.2", ops.unary(build_mm(g, "mm.0", cur), "gelu_erf"))

    def rope(self) -> RopeSpec:
        """Half of each head turns by the row, half by the column."""
        d = self.hparams.n_embd_head
        return RopeSpec("vision", d, 10000.0, sections=(d // 4, d // 4))


class Qwen25VL(Qwen2VL):
    """RMS norms, a gated feed-forward; most layers look through windows."""

    name = "qwen2.5vl_merger"
    norm = "rms"
    gated = True

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        pattern = gguf.get_int("clip.vision.n_wa_pattern", 0, lo=0)
        self.n_window = gguf.get_int("clip.vision.window_size", WINDOW_PIXELS, lo=1) // self.hparams.block_size
        if pattern and not self.n_window:
            reason = f"windows are smaller than a block of {self.hparams.block_size} pixels"
            raise HparamError("clip.vision.window_size", reason, gguf.path)
        self._pattern = pattern

    def is_windowed(self, il: int) -> bool:
        """All but every so manieth layer."""
        return self._pattern > 0 and (il + 1) % self._pattern != 0
