// The codebook types: an index gives eight or four magnitudes, a byte of bits their signs. Source: gguf/quants.py.
// NUMERICS: (d * scale * constant) first, then the magnitude, then the sign, as the reference multiplies.
#include "dequant_iq.h"

#include <cstring>

#include "half.h"
#include "iq_grids.h"

namespace cext {
namespace {

template <typename Entry>
void put_signed(Entry magnitudes, uint8_t signs, float dl, float* y) {
  for (size_t j = 0; j < sizeof magnitudes; ++j) {
    const float value = dl * (float)(magnitudes >> 8 * j & 255);
    y[j] = signs >> j & 1 ? -value : value;
  }
}

void put_shifted(uint64_t digits, float delta, float dl, float* y) {
  for (int j = 0; j < 8; ++j) y[j] = dl * ((float)(int8_t)(digits >> 8 * j & 255) + delta);
}

inline uint32_t read_u32(const void* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// The scale of 16 values in a byte of two nibbles. Source: IQ2_XS and IQ2_S.
inline float scale_of_nibble(float d, const uint8_t* scales, int i) {
  return d * (0.5f + (float)(scales[i / 2] >> 4 * (i % 2) & 15)) * 0.25f;
}

constexpr float iq1_delta = 0.125f;

}  // namespace

void dequantize_block(const block_iq2_xxs& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 8; ++i) {
    uint8_t index[4];
    std::memcpy(index, b.qs + 4 * i, sizeof index);
    const uint32_t packed = read_u32(b.qs + 4 * i + 2);
    const float dl = d * (0.5f + (float)(packed >> 28)) * 0.25f;
    for (int j = 0; j < 4; ++j)
      put_signed(iq2xxs_grid.entry[index[j]], iq_signs(packed >> 7 * j), dl, y + 32 * i + 8 * j);
  }
}

void dequantize_block(const block_iq2_xs& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    const float dl = scale_of_nibble(d, b.scales, i / 2);
    put_signed(iq2xs_grid.entry[b.qs[i] & 511], iq_signs(b.qs[i] >> 9), dl, y + 8 * i);
  }
}

void dequantize_block(const block_iq2_s& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    const float dl = scale_of_nibble(d, b.scales, i / 2);
    const int index = b.qs[i] | (b.qh[i / 4] >> 2 * (i % 4) & 3) << 8;
    put_signed(iq2s_grid.entry[index], b.signs[i], dl, y + 8 * i);
  }
}

void dequantize_block(const block_iq3_xxs& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 8; ++i) {
    const uint32_t packed = read_u32(b.scales_signs + 4 * i);
    const float dl = d * (0.5f + (float)(packed >> 28)) * 0.5f;
    for (int j = 0; j < 8; ++j) {
      const uint8_t signs = (uint8_t)(iq_signs(packed >> 7 * (j / 2)) >> 4 * (j % 2));
      put_signed(iq3xxs_grid.entry[b.qs[8 * i + j]], signs, dl, y + 32 * i + 4 * j);
    }
  }
}

void dequantize_block(const block_iq3_s& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 64; ++i) {
    const int scale = b.scales[i / 16] >> 4 * (i / 8 % 2) & 15;
    const float dl = d * (float)(1 + 2 * scale);
    const int index = b.qs[i] | (b.qh[i / 8] >> (i % 8) & 1) << 8;
    put_signed(iq3s_grid.entry[index], (uint8_t)(b.signs[i / 2] >> 4 * (i % 2)), dl, y + 4 * i);
  }
}

void dequantize_block(const block_iq1_s& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    const uint16_t qh = b.qh[i / 4];
    const float dl = d * (float)(2 * (qh >> 12 & 7) + 1);
    const int index = b.qs[i] | (qh >> 3 * (i % 4) & 7) << 8;
    put_shifted(iq1s_grid.entry[index], qh & 0x8000 ? -iq1_delta : iq1_delta, dl, y + 8 * i);
  }
}

void dequantize_block(const block_iq1_m& b, float* y) {
  uint16_t words[4];
  std::memcpy(words, b.scales, sizeof words);
  const int d_bits = words[0] >> 12 | (words[1] >> 12) << 4 | (words[2] >> 12) << 8 | (words[3] >> 12) << 12;
  const float d = f16_to_f32((uint16_t)d_bits);
  for (int i = 0; i < 32; ++i) {
    const int scale = words[i / 8] >> 3 * (i / 2 % 4) & 7;
    const int nibble = b.qh[i / 2] >> 4 * (i % 2) & 15;
    const float dl = d * (float)(2 * scale + 1);
    const int index = b.qs[i] | (nibble & 7) << 8;
    put_shifted(iq1s_grid.entry[index], nibble & 8 ? -iq1_delta : iq1_delta, dl, y + 8 * i);
  }
}

}  // namespace cext
