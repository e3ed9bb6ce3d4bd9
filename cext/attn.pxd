"""Attention over pages: what cext/src/attn.h offers."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from cext.rope cimport RopeParams

cdef extern from "attn.h" namespace "cext" nogil:
    cdef struct KVRun:
        uint8_t* page
    cdef struct AttnSegment:
        int32_t t0
        int32_t n_tokens
        int64_t run0
        int64_t n_runs
    cdef struct AttnParams:
        int32_t n_head
        int32_t n_head_kv
        int32_t d_k
        int32_t d_v
        int32_t type_k
        int32_t type_v
        int64_t k_off
        int64_t v_off
        float scale
        float softcap
        int32_t swa_kind
        int32_t n_swa
        int32_t causal
        float max_alibi_bias
        int64_t v_in_k
        const float* sinks
        const float* rel_bias
        int64_t rel_max
        RopeParams rope
    cdef struct AttnCall:
        const AttnParams* p
        int64_t n_tokens
        const float* q
        int64_t ld_q
        const int32_t* pos
        const AttnSegment* segments
        int64_t n_segments
        const KVRun* runs
        float* out
        int64_t ld_out
        void* shared
        int64_t shared_bytes
    cdef struct AttnKernels:
        void (*task)(const AttnCall*, int64_t, void*) noexcept nogil
        void (*merge)(const AttnCall*, int64_t, void*) noexcept nogil
        void (*store)(const AttnParams*, const float*, int64_t, const float*, int64_t, uint8_t**,
                      const int32_t*, int64_t, int64_t) noexcept nogil
    int attn_check(const AttnParams* p)
    int64_t attn_shared_bytes(const AttnParams* p, int64_t n_tokens_max, int64_t n_ctx)
    int64_t attn_scratch_bytes(const AttnParams* p)
    int64_t attn_prepare(const AttnCall* call, int n_threads)
    int64_t attn_n_merge(const AttnCall* call)
    const AttnKernels& attn_kernels_for(int isa)
