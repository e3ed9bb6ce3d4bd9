"""Random blocks of every weight type: any bit pattern in the weights, scales that are finite and of ordinary size."""

from __future__ import annotations

import numpy as np

from cext.quants import block_size
from engine.types import QuantType, U8Array

T = QuantType
# Where a block's half floats lie. Source: cext/src/blocks.h.
HALF_FLOATS: dict[QuantType, tuple[int, ...]] = {
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q8_0: (0,),
    T.Q2_K: (80, 82),
    T.Q3_K: (108,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.IQ4_NL: (0,),
    T.IQ4_XS: (0,),
    T.IQ2_XXS: (0,),
    T.IQ2_XS: (0,),
    T.IQ2_S: (0,),
    T.IQ3_XXS: (0,),
    T.IQ3_S: (0,),
    T.IQ1_S: (0,),
    T.TQ1_0: (52,),
    T.TQ2_0: (64,),
    T.Q1_0: (0,),
}


def random_rows(rng: np.random.Generator, type: QuantType, n_rows: int, n_cols: int) -> U8Array:
    """Return u8[n_rows * bytes of a row]: a matrix of this type as it would lie in a file."""
    if type in (T.F32, T.F16):
        values = rng.standard_normal((n_rows, n_cols)).astype(np.float32 if type is T.F32 else np.float16)
        return values.view(np.uint8).reshape(-1)
    if type is T.BF16:
        values = rng.standard_normal((n_rows, n_cols)).astype(np.float32)
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8).reshape(-1)
    elements, n_bytes = block_size(type)
    n_blocks = n_rows * n_cols // elements
    blocks = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for at in HALF_FLOATS.get(type, ()):
        blocks[:, at : at + 2] = halves(rng, n_blocks)
    if type is T.Q8_K:
        blocks[:, :4] = (rng.standard_normal(n_blocks) * 0.05).astype(np.float32)[:, None].view(np.uint8)
    if type is T.MXFP4:
        blocks[:, 0] = rng.integers(115, 128, n_blocks)
    if type is T.NVFP4:
        blocks[:, :4] = rng.integers(0, 0x70, (n_blocks, 4))
    if type is T.IQ1_M:
        nibbles = halves(rng, n_blocks).view(np.uint16)[:, 0]
        for i in range(4):
            high = blocks[:, 49 + 2 * i]
            high[:] = (high & 15) | ((nibbles >> (4 * i) & 15) << 4).astype(np.uint8)
    return blocks.reshape(-1)


def halves(rng: np.random.Generator, n: int) -> U8Array:
    """Return u8[n, 2]: half floats of either sign, about 0.05."""
    return (rng.standard_normal(n) * 0.05).astype(np.float16)[:, None].view(np.uint8)
