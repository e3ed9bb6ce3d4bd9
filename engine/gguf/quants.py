"""Tensor types: how large their blocks are, and their values as float32.

Stands between the file (bytes of a tensor) and whoever wants numbers: tests, `read_tensor`, adapters. The kernels have
their own readers of the same blocks.
"""

from __future__ import annotations

import math
from functools import cache

from cext import quants
from engine.errors import UnsupportedQuantError
from engine.types import F32Array, QuantType, U8Array


@cache
def block_size(quant_type: QuantType) -> tuple[int, int]:
    """Values in a block and bytes of a block.

    Source: gguf.constants.GGML_QUANT_SIZES.
    """
    return quants.block_size(quant_type)


def tensor_bytes(quant_type: QuantType, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of that type and shape; ValueError where its rows are no whole number of blocks."""
    n_per_block, block_bytes = block_size(quant_type)
    if not shape or shape[-1] % n_per_block:
        raise ValueError(f"rows of {shape[-1] if shape else 0} values are no multiple of {n_per_block}")
    return math.prod(shape) // n_per_block * block_bytes


def dequantize(quant_type: QuantType, data: U8Array, shape: tuple[int, ...]) -> F32Array:
    """The values of a tensor.

    Args:
        quant_type: how data is packed; integer types are converted.
        data: u8[nbytes], the tensor's blocks as they lie in the file.
        shape: slowest axis first; the last one a multiple of the block.
    Returns: f32[*shape], new; bit for bit what the `gguf` package gives.
    Raises: UnsupportedQuantError: where the type has no de-quantiser. ValueError: if data does not fit the shape.
    Thread: any; runs without the GIL.
    Source: gguf/quants.py.
    """
    if block_size(quant_type) == (0, 0):
        raise UnsupportedQuantError(quant_type.name)
    expected = tensor_bytes(quant_type, shape)
    if data.nbytes != expected:
        raise ValueError(f"{data.nbytes} bytes of data, {expected} expected for {quant_type.name} {shape}")
    return quants.dequantize(quant_type, data).reshape(shape)
