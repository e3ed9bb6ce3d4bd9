"""What a sequence knows of the images in it.

All cells of an image stand at one position, its time; each was turned by a row and a column as well, which reach beyond
it. What follows an image begins behind the largest of the three. Source: arXiv:2409.12191 2.1 (M-RoPE).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from engine.types import I32Array


class Image(NamedTuple):
    """The cells of an image, or of a frame of a film.

    Attributes:
        pos: their position.
        reach: the largest position on any axis.
        row, column: those of the last cell.
    """

    pos: int
    reach: int
    row: int
    column: int


Images = tuple[Image, ...]
"""Those of one sequence, by position."""


def inside(images: Images, p0: int, p1: int) -> Images:
    """Those at positions of a range."""
    return tuple(image for image in images if p0 <= image.pos < p1)


def outside(images: Images, p0: int, p1: int) -> Images:
    """Those at other positions."""
    return tuple(image for image in images if not p0 <= image.pos < p1)


def joined(images: Iterable[Image]) -> Images:
    """By position."""
    return tuple(sorted(images))


def with_cells(images: Images, axes: I32Array) -> Images:
    """With cells behind the others at axes i32[n, 4] (time, row, column, unused); those of a text stand alike on all."""
    by_pos = {image.pos: image for image in images}
    for pos in np.unique(axes[:, 0]).tolist():
        cells = axes[axes[:, 0] == pos, :3]
        if pos in by_pos or (cells != pos).any():
            reach = max(int(cells.max()), by_pos[pos].reach if pos in by_pos else pos)
            by_pos[pos] = Image(pos, reach, int(cells[-1, 1]), int(cells[-1, 2]))
    return joined(by_pos.values())
