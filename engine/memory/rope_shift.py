"""Rotating cached K by a number of positions: what folds the deltas of shifts into K.

Angles are linear in the position for every kind of scaling here, so K encoded at p and turned by d is K encoded at
p + d. A magnitude factor (YaRN's) is in K already and is not applied again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine.types import F32Array, F64Array, I32Array


@dataclass(frozen=True, slots=True, eq=False)
class RopeLayer:
    """How one layer's heads rotate.

    Attributes:
        kind: "none"; "norm": pairs (2i, 2i + 1); "neox": pairs (i, i + n_rot / 2).
        n_rot: dimensions that rotate, from `offset` on.
        freq_base, freq_scale, ext_factor, beta_fast, beta_slow, n_ctx_orig: as in ggml_rope_ext.
        freq_factors: f32[n_rot / 2] that divide the frequencies, or None.
    """

    kind: Literal["none", "norm", "neox"]
    n_rot: int = 0
    freq_base: float = 10000.0
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    n_ctx_orig: int = 0
    freq_factors: F32Array | None = None
    offset: int = 0

    def frequencies(self) -> F64Array:
        """f64[n_rot / 2], radians per position.

        Source: arXiv:2309.00071 3.2 (interpolation by parts), with ggml_rope_ext's clamps.
        """
        i = np.arange(self.n_rot // 2, dtype=np.float64)
        free = self.freq_base ** (-2.0 * i / self.n_rot)
        if self.freq_factors is not None:
            free = free / self.freq_factors.astype(np.float64)
        stretched = self.freq_scale * free
        if self.ext_factor == 0.0:
            return np.asarray(stretched, np.float64)
        low = max(0.0, math.floor(self._turning_dim(self.beta_fast)))
        high = min(self.n_rot - 1.0, math.ceil(self._turning_dim(self.beta_slow)))
        mix = self.ext_factor * (1.0 - np.clip((i - low) / max(0.001, high - low), 0.0, 1.0))
        return np.asarray(stretched * (1.0 - mix) + free * mix, np.float64)

    def _turning_dim(self, beta: float) -> float:
        """The pair that turns beta times within the trained context."""
        return self.n_rot * math.log(self.n_ctx_orig / (beta * 2.0 * math.pi)) / (2.0 * math.log(self.freq_base))


class NumpyRopeShift:
    """A `RopeShift` for layers of any kinds.

    Args:
        layers: by il; a layer that is missing does not rotate.
    """

    def __init__(self, layers: Mapping[int, RopeLayer]) -> None:
        self._layers = {il: layer for il, layer in layers.items() if layer.kind != "none" and layer.n_rot > 0}
        self._frequencies = {il: layer.frequencies() for il, layer in self._layers.items()}

    def rotates(self, il: int) -> bool:
        """Whether K of layer il depends on the position."""
        return il in self._layers

    def rotate(self, il: int, k: F32Array, delta: I32Array) -> None:
        """Turn K encoded at p into K encoded at p + delta, in place.

        Args:
            il: a layer that rotates.
            k: f32[n_cells, n_head_kv, d_k].
            delta: i32[n_cells].
        """
        layer = self._layers[il]
        angle = delta.astype(np.float64)[:, None, None] * self._frequencies[il]
        cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        turned = k[..., layer.offset : layer.offset + layer.n_rot]
        half = layer.n_rot // 2
        x = turned[..., 0::2] if layer.kind == "norm" else turned[..., :half]
        y = turned[..., 1::2] if layer.kind == "norm" else turned[..., half:]
        x[...], y[...] = x * cos - y * sin, x * sin + y * cos
