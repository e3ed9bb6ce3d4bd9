// One function per block type, each of one block. Source of every formula: gguf/quants.py, `dequantize_blocks`.
// NUMERICS: products keep the order of the reference, so that odd scales (subnormal, infinite) round alike.
#include "dequant.h"

#include <cstring>

#include "blocks.h"
#include "dequant_iq.h"
#include "half.h"
#include "quant_types.h"
#include "status.h"

namespace cext {
namespace {

inline int fifth_bit(const uint8_t* qh, int j) { return (qh[j / 8] >> (j % 8) & 1) << 4; }

void dequantize_block(const block_q4_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)((b.qs[j] & 15) - 8);
    y[j + 16] = d * (float)((b.qs[j] >> 4) - 8);
  }
}

void dequantize_block(const block_q4_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)(b.qs[j] & 15) + m;
    y[j + 16] = d * (float)(b.qs[j] >> 4) + m;
  }
}

void dequantize_block(const block_q5_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)(((b.qs[j] & 15) | fifth_bit(b.qh, j)) - 16);
    y[j + 16] = d * (float)((b.qs[j] >> 4 | fifth_bit(b.qh, j + 16)) - 16);
  }
}

void dequantize_block(const block_q5_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)((b.qs[j] & 15) | fifth_bit(b.qh, j)) + m;
    y[j + 16] = d * (float)(b.qs[j] >> 4 | fifth_bit(b.qh, j + 16)) + m;
  }
}

void dequantize_block(const block_q8_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) y[j] = d * (float)b.qs[j];
}

void dequantize_block(const block_q8_1& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 32; ++j) y[j] = d * (float)b.qs[j];
}

void dequantize_block(const block_q2_k& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < QK_K; ++j) {
    const float dl = d * (float)(b.scales[j / 16] & 15), ml = dmin * (float)(b.scales[j / 16] >> 4);
    y[j] = dl * (float)(b.qs[j / 128 * 32 + j % 32] >> 2 * (j / 32 % 4) & 3) - ml;
  }
}

void dequantize_block(const block_q3_k& b, float* y) {
  const float d = f16_to_f32(b.d);
  int8_t scales[16];
  get_scales_q3_k(b.scales, scales);
  for (int j = 0; j < QK_K; ++j) {
    const float dl = d * (float)scales[j / 16];
    const int low = b.qs[j / 128 * 32 + j % 32] >> 2 * (j / 32 % 4) & 3;
    const int offset = b.hmask[j % 32] >> (j / 32) & 1 ? 0 : 4;
    y[j] = dl * (float)(low - offset);
  }
}

void dequantize_block(const block_q4_k& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < 8; ++i) {
    uint8_t scale, minimum;
    get_scale_min_k4(i, b.scales, &scale, &minimum);
    const float dl = d * (float)scale, ml = dmin * (float)minimum;
    const uint8_t* qs = b.qs + i / 2 * 32;
    for (int j = 0; j < 32; ++j) y[32 * i + j] = dl * (float)(qs[j] >> 4 * (i % 2) & 15) - ml;
  }
}

void dequantize_block(const block_q5_k& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < 8; ++i) {
    uint8_t scale, minimum;
    get_scale_min_k4(i, b.scales, &scale, &minimum);
    const float dl = d * (float)scale, ml = dmin * (float)minimum;
    const uint8_t* qs = b.qs + i / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int q = (qs[j] >> 4 * (i % 2) & 15) | (b.qh[j] >> i & 1) << 4;
      y[32 * i + j] = dl * (float)q - ml;
    }
  }
}

void dequantize_block(const block_q6_k& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < QK_K; ++j) {
    const float dl = d * (float)b.scales[j / 16];
    const int low = b.ql[j / 128 * 64 + j % 64] >> 4 * (j / 64 % 2) & 15;
    const int high = b.qh[j / 128 * 32 + j % 32] >> 2 * (j / 32 % 4) & 3;
    y[j] = dl * (float)((low | high << 4) - 32);
  }
}

void dequantize_block(const block_q8_k& b, float* y) {
  for (int j = 0; j < QK_K; ++j) y[j] = b.d * (float)b.qs[j];
}

void dequantize_block(const block_iq4_nl& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)kvalues_iq4nl[b.qs[j] & 15];
    y[j + 16] = d * (float)kvalues_iq4nl[b.qs[j] >> 4];
  }
}

void dequantize_block(const block_iq4_xs& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 8; ++i) {
    const int low = b.scales_l[i / 2] >> 4 * (i % 2) & 15, high = b.scales_h >> 2 * i & 3;
    const float dl = d * (float)((low | high << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      y[32 * i + j] = dl * (float)kvalues_iq4nl[b.qs[16 * i + j] & 15];
      y[32 * i + j + 16] = dl * (float)kvalues_iq4nl[b.qs[16 * i + j] >> 4];
    }
  }
}

// Ternary digit i of a byte that holds digit / 3^5 as a fraction of 256: multiply by 3^i (mod 256), then by 3.
inline float ternary_digit(uint8_t byte, int i) {
  constexpr uint8_t powers[5] = {1, 3, 9, 27, 81};
  return (float)(((uint8_t)(byte * powers[i]) * 3 >> 8) - 1);
}

void dequantize_block(const block_tq1_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 5; ++i) {
    for (int j = 0; j < 32; ++j) y[32 * i + j] = d * ternary_digit(b.qs[j], i);
    for (int j = 0; j < 16; ++j) y[160 + 16 * i + j] = d * ternary_digit(b.qs[32 + j], i);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) y[240 + 4 * i + j] = d * ternary_digit(b.qh[j], i);
}

void dequantize_block(const block_tq2_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < QK_K; ++j) y[j] = d * (float)((b.qs[j / 128 * 32 + j % 32] >> 2 * (j / 32 % 4) & 3) - 1);
}

void dequantize_block(const block_mxfp4& b, float* y) {
  const float d = e8m0_to_f32_half(b.e);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * (float)kvalues_mxfp4[b.qs[j] & 15];
    y[j + 16] = d * (float)kvalues_mxfp4[b.qs[j] >> 4];
  }
}

void dequantize_block(const block_nvfp4& b, float* y) {
  for (int i = 0; i < 4; ++i) {
    const float d = ue4m3_to_f32_half(b.d[i]);
    for (int j = 0; j < 8; ++j) {
      y[16 * i + j] = d * (float)kvalues_mxfp4[b.qs[8 * i + j] & 15];
      y[16 * i + j + 8] = d * (float)kvalues_mxfp4[b.qs[8 * i + j] >> 4];
    }
  }
}

void dequantize_block(const block_q1_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 128; ++j) y[j] = b.qs[j / 8] >> (j % 8) & 1 ? d : -d;
}

template <typename Block>
void dequantize_blocks(const uint8_t* src, float* dst, int64_t n_blocks, int64_t n_per_block) {
  for (int64_t i = 0; i < n_blocks; ++i) {
    Block block;
    std::memcpy(&block, src + i * (int64_t)sizeof block, sizeof block);
    dequantize_block(block, dst + i * n_per_block);
  }
}

template <typename Number>
void convert(const uint8_t* src, float* dst, int64_t n_elements, int64_t) {
  for (int64_t i = 0; i < n_elements; ++i) {
    Number value;
    std::memcpy(&value, src + i * (int64_t)sizeof value, sizeof value);
    dst[i] = (float)value;
  }
}

template <float to_f32(uint16_t)>
void convert_half(const uint8_t* src, float* dst, int64_t n_elements, int64_t) {
  for (int64_t i = 0; i < n_elements; ++i) {
    uint16_t value;
    std::memcpy(&value, src + 2 * i, sizeof value);
    dst[i] = to_f32(value);
  }
}

using DequantizeFn = void (*)(const uint8_t* src, float* dst, int64_t n_blocks, int64_t n_per_block);

DequantizeFn dequantizer_of(int32_t type) {
  switch (type) {
    case TYPE_F32: return convert<float>;
    case TYPE_F64: return convert<double>;
    case TYPE_I8: return convert<int8_t>;
    case TYPE_I16: return convert<int16_t>;
    case TYPE_I32: return convert<int32_t>;
    case TYPE_I64: return convert<int64_t>;
    case TYPE_F16: return convert_half<f16_to_f32>;
    case TYPE_BF16: return convert_half<bf16_to_f32>;
    case TYPE_Q4_0: return dequantize_blocks<block_q4_0>;
    case TYPE_Q4_1: return dequantize_blocks<block_q4_1>;
    case TYPE_Q5_0: return dequantize_blocks<block_q5_0>;
    case TYPE_Q5_1: return dequantize_blocks<block_q5_1>;
    case TYPE_Q8_0: return dequantize_blocks<block_q8_0>;
    case TYPE_Q8_1: return dequantize_blocks<block_q8_1>;
    case TYPE_Q2_K: return dequantize_blocks<block_q2_k>;
    case TYPE_Q3_K: return dequantize_blocks<block_q3_k>;
    case TYPE_Q4_K: return dequantize_blocks<block_q4_k>;
    case TYPE_Q5_K: return dequantize_blocks<block_q5_k>;
    case TYPE_Q6_K: return dequantize_blocks<block_q6_k>;
    case TYPE_Q8_K: return dequantize_blocks<block_q8_k>;
    case TYPE_IQ2_XXS: return dequantize_blocks<block_iq2_xxs>;
    case TYPE_IQ2_XS: return dequantize_blocks<block_iq2_xs>;
    case TYPE_IQ2_S: return dequantize_blocks<block_iq2_s>;
    case TYPE_IQ3_XXS: return dequantize_blocks<block_iq3_xxs>;
    case TYPE_IQ3_S: return dequantize_blocks<block_iq3_s>;
    case TYPE_IQ1_S: return dequantize_blocks<block_iq1_s>;
    case TYPE_IQ1_M: return dequantize_blocks<block_iq1_m>;
    case TYPE_IQ4_NL: return dequantize_blocks<block_iq4_nl>;
    case TYPE_IQ4_XS: return dequantize_blocks<block_iq4_xs>;
    case TYPE_TQ1_0: return dequantize_blocks<block_tq1_0>;
    case TYPE_TQ2_0: return dequantize_blocks<block_tq2_0>;
    case TYPE_MXFP4: return dequantize_blocks<block_mxfp4>;
    case TYPE_NVFP4: return dequantize_blocks<block_nvfp4>;
    case TYPE_Q1_0: return dequantize_blocks<block_q1_0>;
    default: return nullptr;
  }
}

}  // namespace

int dequantize_rows(int32_t type, const uint8_t* src, float* dst, int64_t n_elements) {
  const BlockSize size = block_size_of(type);
  const DequantizeFn dequantize = dequantizer_of(type);
  if (size.elements == 0 || dequantize == nullptr) return STATUS_BAD_TYPE;
  if (n_elements < 0 || n_elements % size.elements != 0) return STATUS_BAD_ARGUMENT;
  dequantize(src, dst, n_elements / size.elements, size.elements);
  return STATUS_OK;
}

}  // namespace cext
