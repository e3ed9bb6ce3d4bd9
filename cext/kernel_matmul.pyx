"""Products of packed weights, one call at a time: for the tests and the benchmarks of the compiled kernels.

The engine itself multiplies inside the executor; this module reaches the same functions with numpy arrays.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

from cext.matmul cimport (
    ACT_Q8, ActQ8, Isa, PackedMatrix, act_kind_of, act_q8_bind, act_q8_bytes, isa_best, isa_in_use,
    matmul_kernels_for, matmul_scratch_bytes, pack_panels, packed_init, unpack_row,
)
from cext.matmul cimport matmul_chunk_panels as c_matmul_chunk_panels
from cext.matmul cimport packed_bytes as c_packed_bytes
from cext.threadpool cimport CThreadPool, ThreadPool


cdef extern from "bench.h" namespace "cext" nogil:
    double bench_mul(Isa isa, const PackedMatrix* m, int64_t n_copies, int64_t n_tokens, int n_threads, int n_repeats)
    double bench_read(CThreadPool* pool, const uint8_t* data, int64_t n_bytes, int n_repeats)
    double bench_peak_int8(int n_threads, int n_repeats)


ISA_NAMES = ("scalar", "avx2", "avx512")


def available_isas():
    """The names of the instruction sets that this CPU can run, from the plainest."""
    return ISA_NAMES[: <int>isa_best() + 1]


def packed_bytes(int type, int64_t n_rows, int64_t n_cols):
    """Bytes of a packed matrix; negative where the type is no weight type or n_cols is no multiple of its block."""
    return c_packed_bytes(type, n_rows, n_cols)


def uses_q8(int type):
    """Whether weights of this type multiply activations of 8 bits."""
    return act_kind_of(type) == ACT_Q8


cdef aligned(int64_t n_bytes):
    """u8[n_bytes] that begins on a border of 64 bytes."""
    memory = np.zeros(n_bytes + 64, np.uint8)
    start = -(<uintptr_t>memory.ctypes.data) % 64
    return memory[start : start + n_bytes]


cdef Isa isa_named(isa) except *:
    if isa is None:
        return isa_in_use()
    if isa not in available_isas():
        raise ValueError(f"isa: this CPU cannot run {isa!r}")
    return <Isa>(<int>ISA_NAMES.index(isa))


cdef class PackedWeights:
    """One weight matrix in panels, n_copies times one after another.

    Attributes:
        type: the GGUF number of the weights' type.
        n_rows, n_cols: rows are outputs, columns inputs.
        n_panels: of 16 rows.
        nbytes: of one copy.
    """

    cdef PackedMatrix m
    cdef uint8_t[::1] memory
    cdef readonly int64_t n_copies

    def __init__(self, int type, int64_t n_rows, int64_t n_cols, const uint8_t[::1] rows not None, int64_t n_copies=1):
        """Pack a matrix.

        Args:
            rows: u8[n_rows * bytes of a row], as in a file; the address even.
            n_copies: how many copies to hold, for timing.
        Raises:
            ValueError: where the type is no weight type, or sizes do not fit each other.
        """
        cdef int64_t n_bytes = c_packed_bytes(type, n_rows, n_cols)
        from cext.quants import block_size

        if n_bytes < 0 or n_copies < 1:
            raise ValueError(f"type {type} with {n_rows} rows of {n_cols} columns cannot be packed")
        elements, block_bytes = block_size(type)
        if rows.shape[0] != n_rows * (n_cols // elements) * block_bytes:
            raise ValueError(f"rows: {rows.shape[0]} bytes do not hold {n_rows} rows of {n_cols} columns")
        memory = aligned(n_bytes * n_copies)
        self.memory = memory
        self.n_copies = n_copies
        packed_init(&self.m, type, n_rows, n_cols, &self.memory[0])
        with nogil:
            pack_panels(&self.m, &self.memory[0], &rows[0], 0, self.m.n_panels)
        for i in range(1, n_copies):
            memory[i * n_bytes : (i + 1) * n_bytes] = memory[:n_bytes]

    @property
    def type(self):
        return self.m.type

    @property
    def n_rows(self):
        return self.m.n_rows

    @property
    def n_cols(self):
        return self.m.n_cols

    @property
    def n_panels(self):
        return self.m.n_panels

    @property
    def nbytes(self):
        return self.m.n_panels * self.m.panel_bytes

    def row(self, int64_t row):
        """Return one row, f32[n_cols], as the file's formula gives it. Raises: IndexError."""
        if not 0 <= row < self.m.n_rows:
            raise IndexError(f"row {row} of {self.m.n_rows}")
        out = np.empty(self.m.n_cols, np.float32)
        cdef float[::1] view = out
        with nogil:
            unpack_row(&self.m, row, &view[0])
        return out

    def mul(self, const float[:, ::1] x not None, isa=None, panels=None, tokens=None, fill=np.nan, int64_t n_terms=1):
        """Multiply activations with the weights, quantising them first where the type asks for it.

        Args:
            x: f32[n_tokens, n_cols].
            isa: name of the instruction set, or None for the one in use.
            panels, tokens: (first, end) of what is computed; None for all.
            fill: what the result holds where nothing is computed.
            n_terms: 8-bit rows whose sum a token's activations are, 1 or 2; not read where activations are f32.
        Returns:
            f32[n_tokens, n_rows].
        Raises:
            ValueError: where sizes do not fit, or the CPU cannot run `isa`.
        """
        cdef Isa which = isa_named(isa)
        cdef int64_t p0, p1, t0, t1, n_tokens = x.shape[0]
        p0, p1 = panels or (0, self.m.n_panels)
        t0, t1 = tokens or (0, n_tokens)
        if n_terms not in (1, 2):
            raise ValueError("n_terms: 1 or 2")
        if x.shape[1] != self.m.n_cols or not (0 <= p0 <= p1 <= self.m.n_panels and 0 <= t0 <= t1 <= n_tokens):
            raise ValueError("x, panels or tokens: do not fit the matrix")
        out = np.full((n_tokens, self.m.n_rows), fill, np.float32)
        if n_tokens == 0:
            return out
        cdef float[:, ::1] view = out
        cdef uint8_t[::1] act_memory = aligned(act_q8_bytes(n_tokens * n_terms, self.m.n_cols))
        cdef uint8_t[::1] scratch = aligned(matmul_scratch_bytes(self.m.n_cols))
        cdef ActQ8 act
        act_q8_bind(&act, &act_memory[0], n_tokens, self.m.n_cols, n_terms)
        with nogil:
            if act_kind_of(self.m.type) == ACT_Q8:
                matmul_kernels_for(which).quantize_rows(&x[0, 0], self.m.n_cols, &act, 0, n_tokens)
                matmul_kernels_for(which).mul_q8(&self.m, p0, p1, &act, t0, t1, &view[0, 0], self.m.n_rows, &scratch[0])
            else:
                matmul_kernels_for(which).mul_f32(&self.m, p0, p1, &x[0, 0], self.m.n_cols, t0, t1, &view[0, 0],
                                                  self.m.n_rows, &scratch[0])
        return out

    def chunk_panels(self, int64_t n_tokens, int n_threads):
        """Return how many panels one task should take."""
        return c_matmul_chunk_panels(&self.m, n_tokens, n_threads)

    def time_mul(self, int64_t n_tokens, int n_threads, int n_repeats, isa=None):
        """Return the seconds of the best pass of n_tokens tokens through all copies."""
        cdef Isa which = isa_named(isa)
        cdef double seconds
        with nogil:
            seconds = bench_mul(which, &self.m, self.n_copies, n_tokens, n_threads, n_repeats)
        if seconds < 0:
            raise MemoryError
        return seconds

    def time_read(self, int n_threads, int n_repeats):
        """Return the seconds of the best plain read of all copies."""
        return read_seconds(self.memory, ThreadPool(n_threads), n_repeats)


def read_seconds(const uint8_t[::1] data not None, ThreadPool pool not None, int n_repeats):
    """Return the seconds of the best of n_repeats plain reads (vector sums) of data by the pool's threads."""
    cdef double seconds = 0
    if data.shape[0]:
        with nogil:
            seconds = bench_read(pool.ptr, &data[0], data.shape[0], n_repeats)
    return seconds


def peak_int8(int n_threads, int n_repeats):
    """Return the multiply-adds of bytes a second that n_threads threads reach from registers; 0 without VNNI."""
    cdef double peak
    with nogil:
        peak = bench_peak_int8(n_threads, n_repeats)
    return peak


def quantize(const float[:, ::1] x not None, isa=None, int64_t n_terms=1):
    """Quantise activations to the sum of rows of 8 bits.

    Args:
        x: f32[n_tokens, n_cols].
        isa: name of the instruction set, or None for the one in use.
        n_terms: rows of a token, 1 or 2.
    Returns:
        q i8[n_rows, n_blocks * 32], d f32[n_rows, n_blocks], s (d times the block's sum) alike, and s16
        f32[n_rows, n_blocks, 2] of the blocks' halves; n_rows = n_tokens * n_terms.
    """
    cdef Isa which = isa_named(isa)
    cdef int64_t n_tokens = x.shape[0], n_cols = x.shape[1], n_rows = n_tokens * n_terms
    if n_tokens == 0 or n_cols == 0:
        raise ValueError("x: empty")
    if n_terms not in (1, 2):
        raise ValueError("n_terms: 1 or 2")
    memory = aligned(act_q8_bytes(n_rows, n_cols))
    cdef uint8_t[::1] view = memory
    cdef ActQ8 act
    act_q8_bind(&act, &view[0], n_tokens, n_cols, n_terms)
    with nogil:
        matmul_kernels_for(which).quantize_rows(&x[0, 0], n_cols, &act, 0, n_tokens)
    n_blocks = act.n_blocks
    q = memory[: n_rows * act.ld_q].view(np.int8).reshape(n_rows, act.ld_q)[:, : n_blocks * 32]

    def floats(uintptr_t at, int64_t n):
        start = at - <uintptr_t>&view[0]
        return memory[start : start + 4 * n].view(np.float32)

    n = n_rows * n_blocks
    d = floats(<uintptr_t>act.d, n).reshape(n_rows, n_blocks)
    s = floats(<uintptr_t>act.s, n).reshape(n_rows, n_blocks)
    s16 = floats(<uintptr_t>act.s16, 2 * n).reshape(n_rows, n_blocks, 2)
    return q, d, s, s16
