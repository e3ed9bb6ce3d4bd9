"""Find the strings of a GGUF array in mapped bytes: used by `engine.gguf.header`."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

import numpy as np


cdef extern from "gguf_scan.h" namespace "cext" nogil:
    int64_t _scan_strings "cext::scan_strings"(
        const uint8_t* data, int64_t begin, int64_t end, int64_t n, uint64_t* offsets, uint64_t* lengths
    ) noexcept


def scan_strings(const uint8_t[::1] data not None, int64_t begin, int64_t n):
    """Offsets and lengths of n strings that follow each other from `data[begin]`.

    Args:
        data: u8[size], the file's bytes.
        begin: where the first string's length stands.
        n: how many strings; each takes at least 8 bytes, so at most (size - begin) / 8.
    Returns: (end, offsets u64[n] counted from begin, lengths u64[n]); end is the position behind the last string, or
        -1 - i where string i does not lie within the data (offsets and lengths are then incomplete).
    Raises: ValueError: if begin or n cannot be right for data of this size.
    Thread: any.
    Source: GGUF specification, `gguf_string_t`.
    """
    cdef int64_t size = data.shape[0]
    if begin < 0 or begin > size or n < 0 or n > (size - begin) // 8:
        raise ValueError(f"begin={begin}, n={n} do not fit {size} bytes")
    offsets_array = np.empty(n, dtype=np.uint64)
    lengths_array = np.empty(n, dtype=np.uint64)
    if n == 0:
        return begin, offsets_array, lengths_array
    cdef uint64_t[::1] offsets = offsets_array
    cdef uint64_t[::1] lengths = lengths_array
    cdef int64_t end
    with nogil:
        end = _scan_strings(&data[0], begin, size, n, &offsets[0], &lengths[0])
    return end, offsets_array, lengths_array
