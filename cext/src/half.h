// Half and brain floats to float32 and back, in plain C: the reference that vector code is compared with.
// Source: IEEE 754-2019 3.6 (binary16); bfloat16 is the upper half of a binary32.
#pragma once
#include <cstdint>
#include <cstring>

namespace cext {

static inline float f32_from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t f32_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Exact, subnormals too. A NaN keeps its payload and becomes quiet, as the vector instruction does it.
static inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 31u) return f32_from_bits(sign | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0u));
  if (exponent != 0u) return f32_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
  const float magnitude = (float)mantissa * 0x1p-24f;
  return f32_from_bits(sign | f32_to_bits(magnitude));
}

// Rounds to nearest, ties to even; too large gives infinity; a NaN keeps its upper payload and becomes quiet.
static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = f32_to_bits(value);
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // 65520 and more
  if (magnitude >= 0x38800000u) {                                   // 2^-14: a normal half
    const uint32_t odd = magnitude >> 13 & 1u;
    return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
  // NUMERICS: adding 0.5 leaves the subnormal half, rounded to even, in the last ten bits of the sum.
  const uint32_t sum = f32_to_bits(f32_from_bits(magnitude) + 0.5f);
  return (uint16_t)(sign | (sum - 0x3f000000u));
}

static inline float bf16_to_f32(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

// Rounds to nearest, ties to even; a NaN becomes quiet.
static inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = f32_to_bits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// Half of 2^(e - 127): the scale of an MXFP4 block, for values that are kept doubled.
// Source: OCP Microscaling Formats (MX) v1.0, 5.4.1; halved as the doubled E2M1 values want it.
static inline float e8m0_to_f32_half(uint8_t e) {
  return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

// Half of an unsigned E4M3 float (bias 7): the scale of 16 NVFP4 values; 0x7f stands for zero.
// Source: gguf/quants.py, NVFP4.ue4m3_to_fp32.
static inline float ue4m3_to_f32_half(uint8_t x) {
  const uint32_t exponent = x >> 3 & 15u, mantissa = x & 7u;
  if (x == 0x7f) return 0.0f;
  if (exponent == 0) return (float)mantissa * 0x1p-10f;
  return f32_from_bits((exponent + 119u) << 23 | mantissa << 20);
}

}  // namespace cext
