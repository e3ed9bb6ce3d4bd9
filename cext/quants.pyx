"""De-quantise tensors, and the sizes of their blocks: used by `engine.gguf.quants`."""

from libc.stdint cimport int32_t, int64_t, uint8_t

import numpy as np


cdef extern from "quant_types.h" namespace "cext" nogil:
    cdef struct BlockSize "cext::BlockSize":
        int64_t elements
        int64_t bytes
    BlockSize block_size_of(int32_t type) noexcept

cdef extern from "dequant.h" namespace "cext" nogil:
    int dequantize_rows(int32_t type, const uint8_t* src, float* dst, int64_t n_elements) noexcept


def block_size(int32_t type):
    """(values in a block, bytes of a block) of a tensor type by its GGUF number; (0, 0) where it is not known."""
    cdef BlockSize size = block_size_of(type)
    return size.elements, size.bytes


def dequantize(int32_t type, const uint8_t[::1] data not None):
    """The values of whole blocks as float32.

    Args:
        type: a tensor type by its GGUF number.
        data: u8[n_blocks * bytes of a block], read only; needs no alignment.
    Returns: f32[n_blocks * values in a block], new.
    Raises: ValueError: if the type is not known or data is no whole number of blocks.
    Thread: any; runs without the GIL.
    """
    cdef BlockSize size = block_size_of(type)
    if size.elements == 0:
        raise ValueError(f"tensor type {type} is not known")
    if data.shape[0] % size.bytes != 0:
        raise ValueError(f"{data.shape[0]} bytes are no whole number of blocks of {size.bytes}")
    cdef int64_t n_elements = data.shape[0] // size.bytes * size.elements
    out_array = np.empty(n_elements, dtype=np.float32)
    if n_elements == 0:
        return out_array
    cdef float[::1] out = out_array
    cdef int status
    with nogil:
        status = dequantize_rows(type, &data[0], &out[0], n_elements)
    if status != 0:
        raise ValueError(f"tensor type {type} has no de-quantiser")
    return out_array
