from libc.stdint cimport int32_t, int64_t, uint8_t

cdef extern from "matmul.h" namespace "cext" nogil:
    cdef struct PackedMatrix:
        int32_t type
        int64_t n_rows
        int64_t n_cols
        int64_t n_panels
        int64_t panel_bytes
        const uint8_t* data
    int64_t packed_bytes(int32_t type, int64_t n_rows, int64_t n_cols)
    int packed_init(PackedMatrix* m, int32_t type, int64_t n_rows, int64_t n_cols, const uint8_t* data)
    int pack_panels(const PackedMatrix* m, uint8_t* dst, const uint8_t* src_rows, int64_t panel0, int64_t panel1)
    int unpack_row(const PackedMatrix* m, int64_t row, float* out)
    int64_t act_q8_bytes(int64_t n_tokens, int64_t n_cols)
    int32_t act_kind_of(int32_t type)
