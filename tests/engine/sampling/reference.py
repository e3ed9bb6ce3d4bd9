"""The chain in numpy and float64, slow and obvious: what `cext.sample` must agree with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from engine.sampling import SamplerParams
from engine.types import F32Array, F64Array


def distribution(logits: F32Array, params: SamplerParams, window: Sequence[int] = ()) -> dict[int, float]:
    """Probability of each token that may be drawn."""
    ids = np.arange(len(logits))
    cur = logits.astype(np.float64)
    for token, bias in params.logit_bias:
        cur[token] += bias
    seen = window if params.repeat_last_n < 0 else window[len(window) - min(params.repeat_last_n, len(window)) :]
    for token, count in Counter(seen).items():
        cur[token] = cur[token] * params.repeat_penalty if cur[token] <= 0 else cur[token] / params.repeat_penalty
        cur[token] -= count * params.frequency_penalty + params.presence_penalty
    keep = np.isfinite(cur)
    ids, cur = ids[keep], cur[keep]
    order = np.lexsort((ids, -cur))
    ids, cur = ids[order], cur[order]
    if params.top_k:
        ids, cur = ids[: params.top_k], cur[: params.top_k]
    if params.typical_p < 1:
        p = softmax(cur)
        surprise = np.abs(-np.log(p) - -(p * np.log(p)).sum())
        order = np.lexsort((ids, surprise))
        n = int(np.searchsorted(np.cumsum(p[order]), params.typical_p, side="right")) + 1
        chosen = np.sort(order[:n])
        ids, cur = ids[chosen], cur[chosen]
    if params.temperature == 0:
        return {int(ids[0]): 1.0}
    if params.top_p < 1:
        n = int(np.searchsorted(np.cumsum(softmax(cur)), params.top_p, side="left")) + 1
        ids, cur = ids[:n], cur[:n]
    if params.min_p > 0:
        keep = cur >= cur[0] + math.log(params.min_p)
        ids, cur = ids[keep], cur[keep]
    return dict(zip(ids.tolist(), softmax(cur / params.temperature).tolist(), strict=True))


def softmax(x: F64Array) -> F64Array:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum(), dtype=np.float64)
