"""Cells of one cache type as cells of another: what loading does when it is asked to convert."""

from __future__ import annotations

import numpy as np

from cext.pages import decode_rows, encode_rows
from engine.memory.layout import KVLayout, row_bytes
from engine.types import F32Array, QuantType, U8Array


def convert_cells(source: KVLayout, target: KVLayout, data: U8Array, n: int) -> U8Array:
    """K and V of n cells in the types of another layout of the same layers.

    Args:
        data: u8[n * source.cell_bytes], laid out like a page of n cells.

    Returns: u8[n * target.cell_bytes], laid out like a page of n cells.
    """
    out = np.empty(n * target.cell_bytes, np.uint8)
    for layer in source.layers:
        il, heads = layer.il, layer.n_head_kv
        for begin, to, d, from_type, to_type in (
            (source.k_off(il, n), target.k_off(il, n), layer.d_k, source.type_k, target.type_k),
            (source.v_off(il, n), target.v_off(il, n), layer.d_v, source.type_v, target.type_v),
        ):
            if d:
                _convert_rows(data[begin:], out[to:], (heads * n, d), from_type, to_type)
    return out


def _convert_rows(
    data: U8Array, out: U8Array, shape: tuple[int, int], from_type: QuantType, to_type: QuantType
) -> None:
    """The first rows of data, f32[shape] once decoded, as the first rows of out."""
    n_from, n_to = shape[0] * row_bytes(from_type, shape[1]), shape[0] * row_bytes(to_type, shape[1])
    if from_type is to_type:
        out[:n_to] = data[:n_from]
        return
    values: F32Array = np.empty(shape, np.float32)
    decode_rows(from_type, data[:n_from], values)
    encode_rows(to_type, values, out[:n_to])
