"""Rotation: the parameters of cext/src/rope.h and the tables made from them."""

from libc.stdint cimport int32_t, int64_t

cdef extern from "rope.h" namespace "cext" nogil:
    cdef struct RopeParams:
        int32_t kind
        int32_t n_rot
        float freq_base
        float freq_scale
        float ext_factor
        float attn_factor
        float beta_fast
        float beta_slow
        int32_t n_ctx_orig
        int32_t sections[4]
        const float* freq_factors
    void rope_tables_c "cext::rope_tables"(const RopeParams* p, const int32_t* pos, int64_t n, float* tables)
    void rope_delta_table_c "cext::rope_delta_table"(const RopeParams* p, int32_t delta, float* table)
