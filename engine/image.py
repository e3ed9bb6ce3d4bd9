"""Images as arrays: resizing, normalising, and cutting into patches in the order of a vision tower.

Stands before `engine.context.vision`; knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import ParamError
from engine.types import F32Array, I32Array, I64Array

SIDE_MAX = 1 << 14  # pixels along a side
PIXELS_MAX = 1 << 26

Image = npt.NDArray[np.uint8] | F32Array
"""uint8[height, width, 3] from 0 to 255, or f32[height, width, 3] from 0 to 1; red, green, blue."""


def as_float(image: Image) -> F32Array:
    """An image from 0 to 1: f32[height, width, 3]. Raises: ParamError: another shape or type."""
    pixels = np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not (min(pixels.shape) >= 1 and max(pixels.shape) <= SIDE_MAX):
        raise ParamError(f"an image of shape {pixels.shape}: [height, width, 3] is needed, sides up to {SIDE_MAX}")
    if pixels.size > 3 * PIXELS_MAX:
        raise ParamError(f"an image of {pixels.size // 3:,} pixels: up to {PIXELS_MAX:,} can be taken")
    if pixels.dtype == np.uint8:
        return pixels.astype(np.float32) / np.float32(255)
    if pixels.dtype not in (np.float32, np.float64) or not np.isfinite(pixels).all():
        raise ParamError(f"an image of type {pixels.dtype}: uint8, or finite float32, is needed")
    return pixels.astype(np.float32)


def resized(image: F32Array, height: int, width: int) -> F32Array:
    """Cubic interpolation, over as many pixels as fall together where the image shrinks: f32[height, width, 3]."""
    if image.shape[:2] == (height, width):
        return image
    down, across = _resampling(image.shape[0], height), _resampling(image.shape[1], width)
    rows = np.tensordot(down, image, axes=(1, 0))
    return np.clip(np.tensordot(rows, across, axes=(1, 1)).transpose(0, 2, 1), 0.0, 1.0)


def _resampling(n_in: int, n_out: int) -> F32Array:
    """Weights f32[n_out, n_in] of each pixel for each new one. Source: Keys 1981 with a = -1/2, as PIL's BICUBIC."""
    step = n_in / n_out
    reach = max(step, 1.0)
    centre = (np.arange(n_out) + 0.5) * step
    x = np.abs(np.arange(n_in) + 0.5 - centre[:, None]) / reach
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1.0, -0.5 * x**3 + 2.5 * x**2 - 4.0 * x + 2.0
    weight = np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True), np.float32)


def normalised(image: F32Array, mean: Sequence[float], std: Sequence[float]) -> F32Array:
    """(image - mean) / std, channel by channel."""
    return np.asarray((image - np.asarray(mean, np.float32)) / np.asarray(std, np.float32), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Patches:
    """An image cut into patches, block by block.

    Attributes:
        values: f32[n_patches, 3 * patch_size^2], each [channel, row, column].
        row, column: i32[n_patches], its place among the patches of the image.
        grid: rows and columns of blocks.
    """

    values: F32Array
    row: I32Array
    column: I32Array
    grid: tuple[int, int]


def cut(image: F32Array, patch_size: int, n_merge: int) -> Patches:
    """Cut an image of whole blocks, n_merge patches along a side: blocks row by row, patches row by row in each."""
    n_down, n_across = (side // (patch_size * n_merge) for side in image.shape[:2])
    parts = image.reshape(n_down, n_merge, patch_size, n_across, n_merge, patch_size, 3)
    values = parts.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3 * patch_size**2)
    place = np.arange(n_down * n_across * n_merge**2).reshape(n_down, n_merge, n_across, n_merge)
    row, column = np.divmod(place.transpose(0, 2, 1, 3).reshape(-1).astype(np.int32), np.int32(n_across * n_merge))
    return Patches(np.ascontiguousarray(values), row, column, (n_down, n_across))


def window_order(grid: tuple[int, int], n_window: int) -> tuple[I64Array, I64Array]:
    """Blocks sorted by windows of n_window blocks along a side.

    Returns: i64[n_blocks], the blocks window by window; i64[n_windows], how many each has.
    """
    n_down, n_across = grid
    row, column = np.divmod(np.arange(n_down * n_across), n_across)
    window = row // n_window * -(-n_across // n_window) + column // n_window
    return np.argsort(window, kind="stable"), np.bincount(window)
