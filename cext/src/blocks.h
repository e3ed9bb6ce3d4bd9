// The blocks of GGUF's quantised tensor types as they lie in a file, little-endian. Fields keep GGUF's names:
// d the block's scale, m or dmin its minimum (half floats), qs low bits, qh high bits, scales packed sub-block scales.
// Source: the layouts of the `gguf` package (gguf/quants.py) and ggml-common.h's field names.
#pragma once
#include <cstdint>

namespace cext {

constexpr int QK = 32;     // values in a small block
constexpr int QK_K = 256;  // values in a super-block

struct block_q4_0 {
  uint16_t d;
  uint8_t qs[16];  // value j: low nibble of qs[j], value j + 16: its high nibble; minus 8
};
struct block_q4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};
struct block_q5_0 {
  uint16_t d;
  uint8_t qh[4];  // bit j: fifth bit of value j
  uint8_t qs[16];
};
struct block_q5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct block_q8_0 {
  uint16_t d;
  int8_t qs[32];
};
struct block_q8_1 {
  uint16_t d, s;  // s: d times the sum of qs
  int8_t qs[32];
};

struct block_q2_k {
  uint8_t scales[16];  // of 16 values each: low nibble scale, high nibble minimum
  uint8_t qs[64];      // per 128 values 32 bytes, two bits for each of four runs of 32
  uint16_t d, dmin;
};
struct block_q3_k {
  uint8_t hmask[32];  // bit i of byte j: third bit of value 32 i + j, clear means minus 4
  uint8_t qs[64];
  uint8_t scales[12];  // 16 of 6 bits, minus 32
  uint16_t d;
};
struct block_q4_k {
  uint16_t d, dmin;
  uint8_t scales[12];  // 8 scales and 8 minima of 6 bits
  uint8_t qs[128];     // per 64 values 32 bytes: low nibbles, then high nibbles
};
struct block_q5_k {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];  // bit i of byte j: fifth bit of value 32 i + j
  uint8_t qs[128];
};
struct block_q6_k {
  uint8_t ql[128];    // per 128 values 64 bytes: low nibbles of 64, high nibbles of the next 64
  uint8_t qh[64];     // per 128 values 32 bytes, two bits for each of four runs of 32
  int8_t scales[16];  // of 16 values each
  uint16_t d;
};
struct block_q8_k {
  float d;
  int8_t qs[256];
  int16_t bsums[16];  // sums of 16 values each
};

struct block_iq2_xxs {
  uint16_t d;
  uint16_t qs[32];  // per 32 values: four grid indices of 8 bits, then four signs of 7 bits and a scale of 4
};
struct block_iq2_xs {
  uint16_t d;
  uint16_t qs[32];  // per 8 values: grid index of 9 bits, sign index of 7
  uint8_t scales[8];
};
struct block_iq2_s {
  uint16_t d;
  uint8_t qs[32];     // per 8 values: low 8 bits of a grid index of 10
  uint8_t signs[32];  // per 8 values
  uint8_t qh[8];
  uint8_t scales[8];
};
struct block_iq3_xxs {
  uint16_t d;
  uint8_t qs[64];            // per 4 values: grid index
  uint8_t scales_signs[32];  // per 32 values a 32-bit word: four signs of 7 bits and a scale of 4
};
struct block_iq3_s {
  uint16_t d;
  uint8_t qs[64];  // per 4 values: low 8 bits of a grid index of 9
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};
struct block_iq1_s {
  uint16_t d;
  uint8_t qs[32];  // per 8 values: low 8 bits of a grid index of 11
  uint16_t qh[8];  // per 32 values: four times three high bits, a scale of 3, the sign of delta
};
struct block_iq1_m {
  uint8_t qs[32];
  uint8_t qh[16];     // per 8 values a nibble: three high bits, the sign of delta
  uint8_t scales[8];  // four 16-bit words: four scales of 3 bits, and a quarter of the half float d
};
struct block_iq4_nl {
  uint16_t d;
  uint8_t qs[16];
};
struct block_iq4_xs {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];  // per 32 values 16 bytes: low nibbles, then high nibbles
};

struct block_tq1_0 {
  uint8_t qs[48];  // five ternary digits a byte
  uint8_t qh[4];   // four ternary digits a byte
  uint16_t d;
};
struct block_tq2_0 {
  uint8_t qs[64];  // per 128 values 32 bytes, two bits for each of four runs of 32
  uint16_t d;
};
struct block_mxfp4 {
  uint8_t e;  // exponent of the scale (E8M0)
  uint8_t qs[16];
};
struct block_nvfp4 {
  uint8_t d[4];  // scales of 16 values each (unsigned E4M3)
  uint8_t qs[32];
};
struct block_q1_0 {
  uint16_t d;
  uint8_t qs[16];  // bit j: value j is d, clear: minus d
};

static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20);
static_assert(sizeof(block_q5_0) == 22 && sizeof(block_q5_1) == 24);
static_assert(sizeof(block_q8_0) == 34 && sizeof(block_q8_1) == 36);
static_assert(sizeof(block_q2_k) == 84 && sizeof(block_q3_k) == 110 && sizeof(block_q4_k) == 144);
static_assert(sizeof(block_q5_k) == 176 && sizeof(block_q6_k) == 210 && sizeof(block_q8_k) == 292);
static_assert(sizeof(block_iq2_xxs) == 66 && sizeof(block_iq2_xs) == 74 && sizeof(block_iq2_s) == 82);
static_assert(sizeof(block_iq3_xxs) == 98 && sizeof(block_iq3_s) == 110);
static_assert(sizeof(block_iq1_s) == 50 && sizeof(block_iq1_m) == 56);
static_assert(sizeof(block_iq4_nl) == 18 && sizeof(block_iq4_xs) == 136);
static_assert(sizeof(block_tq1_0) == 54 && sizeof(block_tq2_0) == 66);
static_assert(sizeof(block_mxfp4) == 17 && sizeof(block_nvfp4) == 36 && sizeof(block_q1_0) == 18);

// The sixteen values of a nibble in IQ4_NL and IQ4_XS. Source: gguf.quants.IQ4_NL.kvalues.
constexpr int8_t kvalues_iq4nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// Twice the values of a four-bit float E2M1. Source: OCP Microscaling Formats (MX) v1.0, 5.3.3.
constexpr int8_t kvalues_mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Scale and minimum j (0..7) of a Q4_K or Q5_K super-block: 6 bits each, packed in 12 bytes.
static inline void get_scale_min_k4(int j, const uint8_t* scales, uint8_t* scale, uint8_t* minimum) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *minimum = scales[j + 4] & 63;
  } else {
    *scale = (uint8_t)((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4);
    *minimum = (uint8_t)(scales[j + 4] >> 4 | (scales[j] >> 6) << 4);
  }
}

// The sixteen 6-bit scales of a Q3_K super-block, minus 32 already taken.
static inline void get_scales_q3_k(const uint8_t* packed, int8_t* scales) {
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
    const int high = packed[8 + j % 4] >> 2 * (j / 4) & 3;
    scales[j] = (int8_t)((low | high << 4) - 32);
  }
}

}  // namespace cext
