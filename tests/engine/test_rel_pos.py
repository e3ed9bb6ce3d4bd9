"""Buckets of relative positions, against whole numbers: no rounding decides where a bucket begins."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from engine.graph.rel_pos import REL_MAX, rel_bias_table, rel_buckets


def exact_bucket(far: int, n_buckets: int) -> int:
    """The bucket of a distance: itself in the first half, then floor of n/2 * log(far / n/2) / log(REL_MAX / n/2)."""
    half = n_buckets // 2
    if far < half:
        return far
    steps = 0
    while Fraction(REL_MAX, half) ** (steps + 1) <= Fraction(far, half) ** half:
        steps += 1
    return min(half + steps, n_buckets - 1)


@pytest.mark.parametrize("n_buckets", [32, 64])
def test_buckets_before_a_token_grow_with_the_distance(n_buckets: int) -> None:
    distance = np.arange(-300, 301, dtype=np.int32)
    got = rel_buckets(distance, n_buckets, has_later=False)
    assert got.dtype == np.int32
    assert got.tolist() == [exact_bucket(max(-d, 0), n_buckets) for d in range(-300, 301)]


def test_later_cells_have_the_upper_half_of_the_buckets() -> None:
    distance = np.arange(-300, 301, dtype=np.int32)
    got = rel_buckets(distance, 32, has_later=True).tolist()
    assert got == [exact_bucket(abs(d), 16) + (16 if d > 0 else 0) for d in range(-300, 301)]
    assert [got[300 + d] for d in (-128, -8, -1, 0, 1, 7, 8, 128, 300)] == [15, 8, 1, 0, 17, 23, 24, 31, 31]


def test_the_table_has_each_heads_biases_by_distance() -> None:
    weights = np.arange(32 * 3, dtype=np.float32)  # bucket * 3 + head
    table = rel_bias_table(weights, 3, has_later=True).reshape(3, 2 * REL_MAX + 1)
    assert table[:, REL_MAX].tolist() == [0, 1, 2]
    assert table[2, REL_MAX - 1] == 1 * 3 + 2
    assert table[1, REL_MAX + 1] == 17 * 3 + 1
    assert table[0, 0] == 15 * 3
    assert table[0, -1] == 31 * 3
