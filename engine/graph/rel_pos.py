"""Relative positions in buckets: near ones each have their own, far ones share, on a logarithmic scale.

Source: arXiv:1910.10683 section 2.1 (T5); the models' bucket function, with its farthest distance of 128.
"""

from __future__ import annotations

import numpy as np

from engine.types import F32Array, I32Array

REL_MAX = 128
"""Distances from here on share the last bucket."""


def rel_buckets(distance: I32Array, n_buckets: int, *, has_later: bool) -> I32Array:
    """The buckets of distances (the cell's position minus the token's), i32 like them.

    Args:
        distance: i32[...].
        n_buckets: of all.
        has_later: the upper half of the buckets is for cells behind the token; else those count as distance 0.
    """
    first: I32Array = np.zeros_like(distance)
    if has_later:
        n_buckets //= 2
        first = np.where(distance > 0, np.int32(n_buckets), np.int32(0))
        far = np.abs(distance)
    else:
        far = np.maximum(-distance, 0)
    n_exact = n_buckets // 2
    steps = np.log(np.maximum(far, 1) / n_exact) / np.log(REL_MAX / n_exact) * (n_buckets - n_exact)
    shared = np.minimum(n_exact + steps.astype(np.int32), n_buckets - 1)
    buckets: I32Array = first + np.where(far < n_exact, far, shared).astype(np.int32)
    return buckets


def rel_bias_table(weights: F32Array, n_head: int, *, has_later: bool) -> F32Array:
    """The bias of each head by distance: f32[n_head * (2 * REL_MAX + 1)], distance -REL_MAX first.

    Args:
        weights: f32[n_buckets * n_head], the biases by bucket and head.
        n_head: heads.
        has_later: as for `rel_buckets`.
    """
    by_bucket = weights.reshape(-1, n_head)
    distance = np.arange(-REL_MAX, REL_MAX + 1, dtype=np.int32)
    return np.ascontiguousarray(by_bucket[rel_buckets(distance, len(by_bucket), has_later=has_later)].T).reshape(-1)
