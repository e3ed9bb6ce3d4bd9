"""Weights in the layout that the matrix kernels read: packed once at load, in parallel, from the mapped file.

Stands between `engine.weights` and the executor.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from cext.matmul cimport (
    PackedMatrix, TWO_TERM_TOKENS_ROUTED, act_kind_of, act_q8_bytes, pack_panels, packed_bytes, packed_init, unpack_row,
)
from cext.threadpool cimport ThreadPool

cdef extern from "large_memory.h" namespace "cext" nogil:
    void* large_alloc(size_t n_bytes)
    void large_free(void* memory, size_t n_bytes)

cdef extern from "quant_types.h" namespace "cext" nogil:
    cdef struct BlockSize:
        int64_t elements
        int64_t bytes
    BlockSize block_size_of(int32_t type)


cdef class LargeBuffer:
    """Zeroed memory from the system, page-aligned; given back when the last user is gone.

    Raises: MemoryError: where the system has none.
    """

    def __cinit__(self, int64_t nbytes):
        if nbytes < 0:
            raise ValueError(f"nbytes={nbytes}")
        self.nbytes = max(nbytes, 64)
        self.ptr = <uint8_t*>large_alloc(self.nbytes)
        if self.ptr == NULL:
            raise MemoryError(f"{nbytes} bytes could not be had")

    def __dealloc__(self):
        large_free(self.ptr, self.nbytes)

    def view(self):
        """The memory as a uint8 memoryview; must not outlive the buffer's use."""
        return <uint8_t[:self.nbytes]>self.ptr


def weight_bytes(int type, int64_t n_rows, int64_t n_cols):
    """Bytes of a packed matrix, a multiple of 64, or -1 where the type has no kernel or the shape does not fit its blocks."""
    if n_rows < 1 or n_cols < 1:
        return -1
    cdef int64_t n = packed_bytes(type, n_rows, n_cols)
    return n if n < 0 else (n + 63) & ~63


def wants_q8(int type):
    """Whether matrices of this type multiply with 8-bit activations (else with f32)."""
    return act_kind_of(type) == 1


def activation_bytes(int64_t n_tokens_max, int64_t rows_per_token, int64_t n_cols):
    """Bytes of the 8-bit form of activations [n_tokens * rows_per_token, n_cols] for any n_tokens up to the largest."""
    return act_q8_bytes(rows_per_token * max(n_tokens_max, 2 * min(n_tokens_max, TWO_TERM_TOKENS_ROUTED)), n_cols)


cdef class PackedWeight:
    """One weight matrix [n_rows, n_cols] in row panels, or one for each expert.

    Args:
        name: GGUF name.
        type: QuantType number.
        buffer: where the panels lie, those of other matrices too; kept alive.
        offset: byte offset in the buffer, a multiple of 64.
        n_expert: 0 for a single matrix; else that many, one behind the other.
    """

    def __cinit__(self, str name, int type, int64_t n_rows, int64_t n_cols, LargeBuffer buffer not None, int64_t offset,
                  int64_t n_expert=0):
        self.n_expert = n_expert
        self.expert_bytes = weight_bytes(type, n_rows, n_cols)
        cdef int64_t n = self.expert_bytes * max(1, n_expert)
        if n < 0 or n_expert < 0 or offset < 0 or offset % 64 or offset + n > buffer.nbytes:
            raise ValueError(f"{name}: type {type}, shape ({n_rows}, {n_cols}) at {offset} does not fit its buffer")
        if packed_init(&self.matrix, type, n_rows, n_cols, buffer.ptr + offset) != 0:
            raise ValueError(f"{name}: type {type} cannot be packed")
        self.buffer = buffer
        self.name = name

    @property
    def type(self):
        return self.matrix.type

    @property
    def n_rows(self):
        return self.matrix.n_rows

    @property
    def n_cols(self):
        return self.matrix.n_cols

    def row(self, int64_t row):
        """One row, de-quantised: list of n_cols floats (for tests)."""
        import numpy as np
        if row < 0 or row >= self.matrix.n_rows:
            raise IndexError(row)
        cdef float[::1] out = np.empty(self.matrix.n_cols, np.float32)
        unpack_row(&self.matrix, row, &out[0])
        return np.asarray(out)

    @property
    def n_panels(self):
        """Panels of 16 rows of all matrices together."""
        return self.matrix.n_panels * max(1, self.n_expert)

    def pack(self, const uint8_t[::1] source not None, ThreadPool pool not None, int64_t panel0=0, int64_t panel1=-1):
        """Fill panels [panel0, panel1) from the matrix as it lies in the file.

        Args:
            source: IN uint8[max(1, n_expert) * n_rows * row bytes], the whole matrix.
            pool: its threads share the work.
            panel1: -1: to the last.
        """
        cdef BlockSize block = block_size_of(self.matrix.type)
        cdef int64_t expert_src = self.matrix.n_rows * (self.matrix.n_cols // block.elements) * block.bytes
        if source.shape[0] != max(1, self.n_expert) * expert_src:
            raise ValueError(f"{self.name}: {source.shape[0]} bytes do not hold the matrix")
        cdef PackJob job
        job.matrix = &self.matrix
        job.dst = <uint8_t*>self.matrix.data
        job.src = &source[0]
        job.panel0 = panel0
        job.panel1 = self.n_panels if panel1 < 0 else panel1
        if not 0 <= panel0 <= job.panel1 <= self.n_panels:
            raise ValueError(f"{self.name}: panels {panel0} to {panel1} of {self.n_panels}")
        job.chunk = max(1, min(64, (job.panel1 - panel0) // (4 * pool.n_threads)))
        job.expert_src, job.expert_dst = expert_src, self.expert_bytes
        job.status = 0
        cdef int64_t n_tasks = (job.panel1 - panel0 + job.chunk - 1) // job.chunk
        with nogil:
            pool.ptr.run(pack_task, &job, n_tasks, 0)
        if job.status != 0:
            raise ValueError(f"{self.name}: packing failed with status {job.status}")


cdef struct PackJob:
    PackedMatrix* matrix
    uint8_t* dst
    const uint8_t* src
    int64_t panel0
    int64_t panel1
    int64_t chunk
    int64_t expert_src
    int64_t expert_dst
    int status


cdef void pack_task(void* arg, int64_t task, int ith) noexcept nogil:
    cdef PackJob* job = <PackJob*>arg
    cdef int64_t at = job.panel0 + task * job.chunk
    cdef int64_t end = min(at + job.chunk, job.panel1)
    cdef int64_t expert, first, last
    cdef PackedMatrix matrix = job.matrix[0]
    cdef int status
    while at < end:  # a chunk may reach over the border of two experts
        expert, first = at // matrix.n_panels, at % matrix.n_panels
        last = min(first + end - at, matrix.n_panels)
        matrix.data = job.dst + expert * job.expert_dst
        status = pack_panels(&matrix, <uint8_t*>matrix.data, job.src + expert * job.expert_src, first, last)
        if status != 0:
            job.status = status
        at += last - first
