"""Images as arrays: against slow, obvious code."""

from __future__ import annotations

import numpy as np
import pytest

from engine.image import as_float, cut, normalised, resized, window_order


def test_a_resized_ramp_is_a_ramp() -> None:
    across = np.linspace(0.2, 0.8, 24, dtype=np.float32)
    image = np.repeat(np.broadcast_to(across[None, :, None], (10, 24, 3)), 1, axis=0).astype(np.float32)
    for width in (11, 24, 60):
        got = resized(image, 7, width)
        assert got.shape == (7, width, 3)
        place = (np.arange(width) + 0.5) * 24 / width - 0.5
        inside = (place > 5) & (place < 18)
        assert got[:, inside, 1] == pytest.approx(
            np.broadcast_to(0.2 + 0.6 * place[inside] / 23, (7, inside.sum())), abs=3e-4
        )


def test_a_flat_image_stays_flat_and_nothing_leaves_0_to_1() -> None:
    assert resized(np.full((5, 9, 3), 0.25, np.float32), 12, 4) == pytest.approx(0.25)
    checked = resized(np.indices((8, 8)).sum(0)[:, :, None] % 2 * np.ones(3, np.float32), 21, 21)
    assert checked.min() == 0.0
    assert checked.max() == 1.0


def test_the_same_size_is_the_same_image() -> None:
    image = np.random.default_rng(1).random((6, 4, 3), np.float32)
    assert resized(image, 6, 4) is image


def test_bytes_become_shares_and_channels_are_normalised() -> None:
    image = as_float(np.array([[[0, 51, 255]]], np.uint8))
    assert image.tolist() == [[[0.0, np.float32(0.2), 1.0]]]
    assert normalised(image, (0.5, 0.2, 0.0), (0.5, 0.1, 2.0))[0, 0] == pytest.approx([-1.0, 0.0, 0.5], abs=1e-6)


def test_patches_stand_block_by_block() -> None:
    image = np.random.default_rng(2).random((12, 18, 3), np.float32)
    patches = cut(image, patch_size=3, n_merge=2)
    assert patches.grid == (2, 3)
    i = 0
    for block_row in range(2):
        for block_column in range(3):
            for row in (2 * block_row, 2 * block_row + 1):
                for column in (2 * block_column, 2 * block_column + 1):
                    assert (patches.row[i], patches.column[i]) == (row, column)
                    part = image[3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
                    assert np.array_equal(patches.values[i], part.transpose(2, 0, 1).reshape(-1))
                    i += 1
    assert i == len(patches.values)


def test_blocks_stand_window_by_window() -> None:
    order, sizes = window_order((3, 5), 2)
    assert order.tolist() == [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]
    assert sizes.tolist() == [4, 4, 2, 2, 2, 1]
    order, sizes = window_order((3, 5), 5)
    assert order.tolist() == list(range(15))
    assert sizes.tolist() == [15]
