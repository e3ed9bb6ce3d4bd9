"""The products of packed weights, as `src/matmul.h` declares them."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t


cdef extern from "isa.h" namespace "cext" nogil:
    cdef enum Isa:
        pass
    Isa isa_best()
    Isa isa_in_use()


cdef extern from "matmul.h" namespace "cext" nogil:
    struct PackedMatrix:
        int32_t type
        int64_t n_rows
        int64_t n_cols
        int64_t n_panels
        int64_t panel_bytes
        const uint8_t* data

    int64_t packed_panel_rows()
    int64_t packed_bytes(int32_t type, int64_t n_rows, int64_t n_cols)
    int packed_init(PackedMatrix* m, int32_t type, int64_t n_rows, int64_t n_cols, const uint8_t* data)
    int pack_panels(const PackedMatrix* m, uint8_t* dst, const uint8_t* src_rows, int64_t panel0, int64_t panel1)
    int unpack_row(const PackedMatrix* m, int64_t row, float* out)

    cdef enum ActKind:
        ACT_F32
        ACT_Q8

    ActKind act_kind_of(int32_t type)

    struct ActQ8:
        int64_t n_tokens
        int64_t n_cols
        int64_t n_terms
        int64_t ld_q
        int64_t n_blocks
        int8_t* q
        float* d
        float* s
        float* s16
        float* sum
        float* sum16

    int64_t TWO_TERM_TOKENS_ROUTED
    int64_t act_q8_bytes(int64_t n_rows, int64_t n_cols)
    void act_q8_bind(ActQ8* act, void* mem, int64_t n_tokens, int64_t n_cols, int64_t n_terms)

    struct MatmulKernels:
        void (*quantize_rows)(const float* x, int64_t ldx, const ActQ8* dst, int64_t t0, int64_t t1) noexcept nogil
        void (*mul_q8)(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1,
                       float* out, int64_t ld_out, void* scratch) noexcept nogil
        void (*mul_f32)(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0,
                        int64_t t1, float* out, int64_t ld_out, void* scratch) noexcept nogil

    const MatmulKernels& matmul_kernels()
    const MatmulKernels& matmul_kernels_for(Isa isa)
    int64_t matmul_scratch_bytes(int64_t n_cols)
    int64_t matmul_chunk_panels(const PackedMatrix* m, int64_t n_tokens, int n_threads)
