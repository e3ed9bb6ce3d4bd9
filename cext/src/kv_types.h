// Rows of the KV cache in each type it may have: encode, decode, rotate. Scalar; the attention kernels have their own
// fast readers and must agree with these. Source: ggml block formats; rounding as the `gguf` package's quantisers.
#pragma once
#include <cstdint>

#include "rope.h"

namespace cext {

// Bytes of d values in a cache type, or 0: not a cache type, or blocks would not lie within a head (d % 32).
int64_t kv_row_bytes(int32_t type, int64_t d);
// d values to and from a row. STATUS_OK or STATUS_BAD_TYPE.
int kv_encode_row(int32_t type, const float* x, int64_t d, uint8_t* row);
int kv_decode_row(int32_t type, const uint8_t* row, int64_t d, float* x);
// Rotate the K row of one head by a table of rope_delta_table (or rope_tables), in place: decode, rotate, encode.
int kv_rotate_row(int32_t type, uint8_t* row, int64_t d, int32_t kind, int64_t n_rot, const float* table);

}  // namespace cext
