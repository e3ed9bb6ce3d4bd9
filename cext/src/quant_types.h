// Tensor types by their GGUF numbers, with the size of a block. Source: gguf.constants (GGML_QUANT_SIZES).
#pragma once
#include <cstddef>
#include <cstdint>

namespace cext {

enum QuantType : int32_t {
  TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7, TYPE_Q8_0 = 8,
  TYPE_Q8_1 = 9, TYPE_Q2_K = 10, TYPE_Q3_K = 11, TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14, TYPE_Q8_K = 15,
  TYPE_IQ2_XXS = 16, TYPE_IQ2_XS = 17, TYPE_IQ3_XXS = 18, TYPE_IQ1_S = 19, TYPE_IQ4_NL = 20, TYPE_IQ3_S = 21,
  TYPE_IQ2_S = 22, TYPE_IQ4_XS = 23, TYPE_I8 = 24, TYPE_I16 = 25, TYPE_I32 = 26, TYPE_I64 = 27, TYPE_F64 = 28,
  TYPE_IQ1_M = 29, TYPE_BF16 = 30, TYPE_TQ1_0 = 34, TYPE_TQ2_0 = 35, TYPE_MXFP4 = 39, TYPE_NVFP4 = 40, TYPE_Q1_0 = 41,
};

struct BlockSize {
  int64_t elements;  // values in a block; 0 where the type is not known
  int64_t bytes;
};

inline BlockSize block_size_of(int32_t type) {
  switch (type) {
    case TYPE_F32: case TYPE_I32: return {1, 4};
    case TYPE_F16: case TYPE_BF16: case TYPE_I16: return {1, 2};
    case TYPE_I8: return {1, 1};
    case TYPE_I64: case TYPE_F64: return {1, 8};
    case TYPE_Q4_0: return {32, 18};
    case TYPE_Q4_1: return {32, 20};
    case TYPE_Q5_0: return {32, 22};
    case TYPE_Q5_1: return {32, 24};
    case TYPE_Q8_0: return {32, 34};
    case TYPE_Q8_1: return {32, 36};
    case TYPE_Q2_K: return {256, 84};
    case TYPE_Q3_K: return {256, 110};
    case TYPE_Q4_K: return {256, 144};
    case TYPE_Q5_K: return {256, 176};
    case TYPE_Q6_K: return {256, 210};
    case TYPE_Q8_K: return {256, 292};
    case TYPE_IQ2_XXS: return {256, 66};
    case TYPE_IQ2_XS: return {256, 74};
    case TYPE_IQ3_XXS: return {256, 98};
    case TYPE_IQ1_S: return {256, 50};
    case TYPE_IQ4_NL: return {32, 18};
    case TYPE_IQ3_S: return {256, 110};
    case TYPE_IQ2_S: return {256, 82};
    case TYPE_IQ4_XS: return {256, 136};
    case TYPE_IQ1_M: return {256, 56};
    case TYPE_TQ1_0: return {256, 54};
    case TYPE_TQ2_0: return {256, 66};
    case TYPE_MXFP4: return {32, 17};
    case TYPE_NVFP4: return {64, 36};
    case TYPE_Q1_0: return {128, 18};
    default: return {0, 0};
  }
}

}  // namespace cext
