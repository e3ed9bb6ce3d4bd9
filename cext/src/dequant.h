// De-quantise rows of any tensor type to float32: the scalar reference, bit for bit the `gguf` package.
#pragma once
#include <cstdint>

namespace cext {

// n_elements values (whole blocks) of a type from src, which needs no alignment, to dst.
// STATUS_OK; STATUS_BAD_TYPE for a type that is not known; STATUS_BAD_ARGUMENT where n_elements is no whole number of blocks.
int dequantize_rows(int32_t type, const uint8_t* src, float* dst, int64_t n_elements);

}  // namespace cext
