from libc.stdint cimport int64_t, uint8_t
from cext.matmul cimport PackedMatrix

cdef class LargeBuffer:
    cdef uint8_t* ptr
    cdef readonly int64_t nbytes

cdef class PackedWeight:
    cdef PackedMatrix matrix
    cdef readonly LargeBuffer buffer
    cdef readonly str name
    cdef readonly int64_t n_expert
    cdef readonly int64_t expert_bytes
