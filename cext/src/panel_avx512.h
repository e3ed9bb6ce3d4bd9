// Reads packed panels with AVX-512: weights as bytes in quads, scales as floats. panel.h has the layout.
#pragma once
#include "intrinsics.h"
#include "matmul_impl.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;

CEXT_INLINE __m512i load(const void* p) { return _mm512_loadu_si512(p); }
CEXT_INLINE __m512i broadcast4(const int8_t* p) {
  int32_t value;
  __builtin_memcpy(&value, p, 4);
  return _mm512_set1_epi32(value);
}

// The eight quads of a block as bytes.
//
// SHIFTED leaves the plain high nibbles in their place: quads 4 to 7 are sixteen times what they stand for.
template <int PLANE, bool LUT, bool SHIFTED = false>
CEXT_INLINE void block_quads(const uint8_t* src, __m512i lut, __m512i* w) {
  if constexpr (PLANE == PLANE_BYTE) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = load(src + 64 * j);
    return;
  }
  constexpr bool nibbles = PLANE <= PLANE_NIBBLE2;
  const __m512i low = _mm512_set1_epi8(15);
  if constexpr (nibbles) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i x = load(src + 64 * j);
      w[j] = _mm512_and_si512(x, low);
      w[j + 4] = SHIFTED ? _mm512_andnot_si512(low, x) : _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
    }
    src += 256;
  }
  if constexpr (PLANE == PLANE_NIBBLE1) {
    const __m512i bits = load(src), bit = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 4 ? _mm512_slli_epi16(bits, 4 - j < 0 ? 0 : 4 - j) : _mm512_srli_epi16(bits, j - 4 < 0 ? 0 : j - 4);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xF8);  // a | (b & c)
    }
  }
  if constexpr (PLANE == PLANE_NIBBLE2 || !nibbles) {
    const __m512i mask = _mm512_set1_epi8(nibbles ? 0x30 : 3);
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const __m512i bits = load(src + 64 * p);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int left = (nibbles ? 4 : 0) - 2 * i;
        const __m512i moved = left >= 0 ? _mm512_slli_epi16(bits, left < 0 ? 0 : left) : _mm512_srli_epi16(bits, left < 0 ? -left : 0);
        if constexpr (nibbles) w[4 * p + i] = _mm512_ternarylogic_epi32(w[4 * p + i], moved, mask, 0xF8);
        else w[4 * p + i] = _mm512_and_si512(moved, mask);
      }
    }
    src += 128;
  }
  if constexpr (PLANE == PLANE_CRUMB1) {
    const __m512i bits = load(src), bit = _mm512_set1_epi8(4);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 2 ? _mm512_slli_epi16(bits, j < 2 ? 2 - j : 0) : _mm512_srli_epi16(bits, j < 2 ? 0 : j - 2);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xF8);
    }
  }
  if constexpr (LUT) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm512_shuffle_epi8(lut, w[j]);
  }
}

CEXT_INLINE __m512 load_f16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
CEXT_INLINE __m512 load_s8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
CEXT_INLINE __m512i load_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }

// Scale and minimum of sub-block `sub` (of 32 columns, or 16) of a scale record.
template <int SCALE>
CEXT_INLINE void load_scale(const uint8_t* record, int sub, __m512* d, __m512* m) {
  if constexpr (SCALE == SCALE_E8M0) {
    const __m512i e = load_u8(record), two = _mm512_set1_epi32(2);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    *d = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, two), small));
    return;
  }
  const __m512 base = load_f16(record);
  if constexpr (SCALE == SCALE_F16 || SCALE == SCALE_F16_MIN) {
    *d = base;
    if constexpr (SCALE == SCALE_F16_MIN) *m = load_f16(record + 32);
  } else if constexpr (SCALE == SCALE_K32 || SCALE == SCALE_K16) {
    *d = _mm512_mul_ps(base, load_s8(record + 32 + N * sub));
  } else {
    const __m512 base_min = _mm512_sub_ps(_mm512_setzero_ps(), load_f16(record + 32));
    const __m512i scale = load_u8(record + 64 + N * sub);
    if constexpr (SCALE == SCALE_K32_MIN) {
      *d = _mm512_mul_ps(base, _mm512_cvtepi32_ps(scale));
      *m = _mm512_mul_ps(base_min, _mm512_cvtepi32_ps(load_u8(record + 64 + N * (8 + sub))));
    } else {
      *d = _mm512_mul_ps(base, _mm512_cvtepi32_ps(_mm512_and_si512(scale, _mm512_set1_epi32(15))));
      *m = _mm512_mul_ps(base_min, _mm512_cvtepi32_ps(_mm512_srli_epi32(scale, 4)));
    }
  }
}

template <int SCALE>
constexpr int SUBS = SCALE >= SCALE_K16 ? 2 : 1;  // scales in a block of 32
template <int SCALE>
constexpr bool HAS_MIN = SCALE == SCALE_F16_MIN || SCALE == SCALE_K32_MIN || SCALE == SCALE_K16_MIN;
template <int SCALE>
constexpr int RECORD_BLOCKS = SCALE >= SCALE_K32 ? 8 : 1;
template <int SCALE>
constexpr int RECORD_BYTES = SCALE == SCALE_F16       ? 32
                             : SCALE == SCALE_F16_MIN ? 64
                             : SCALE == SCALE_E8M0    ? 16
                             : SCALE == SCALE_K32     ? 160
                             : SCALE == SCALE_K16     ? 288
                                                      : 320;
template <int PLANE>
constexpr int BLOCK_BYTES = PLANE == PLANE_NIBBLE    ? 256
                            : PLANE == PLANE_NIBBLE1 ? 320
                            : PLANE == PLANE_NIBBLE2 ? 384
                            : PLANE == PLANE_CRUMB   ? 128
                            : PLANE == PLANE_CRUMB1  ? 192
                                                     : 512;

CEXT_INLINE __mmask16 rows_mask(const PackedMatrix* m, int64_t panel) {
  const int64_t left = m->n_rows - panel * N;
  return left >= N ? (__mmask16)0xFFFF : (__mmask16)((1u << left) - 1u);
}

template <int PLANE>
CEXT_INLINE void fetch_block(const uint8_t* block) {
#pragma GCC unroll 8
  for (int at = 0; at < BLOCK_BYTES<PLANE>; at += 64) {
    _mm_prefetch((const char*)block + AHEAD_BYTES + at, _MM_HINT_T1);
    _mm_prefetch((const char*)block + NEAR_BYTES + at, _MM_HINT_T0);
  }
}

// Blocks [b0, b1) of a panel as bytes, less `zero`.
template <int PLANE, bool LUT>
void unpack_weights(const PackedMatrix* m, int64_t panel, int64_t b0, int64_t b1, __m512i lut, int zero, uint8_t* dst) {
  const uint8_t* block = m->data + panel * m->panel_bytes + b0 * BLOCK_BYTES<PLANE>;
  const __m512i z = _mm512_set1_epi8((char)zero);
  for (int64_t b = b0; b < b1; ++b, block += BLOCK_BYTES<PLANE>, dst += QUADS * QUAD_BYTES) {
    fetch_block<PLANE>(block);
    __m512i w[QUADS];
    block_quads<PLANE, LUT>(block, lut, w);
#pragma GCC unroll 8
    for (int j = 0; j < QUADS; ++j) _mm512_store_si512(dst + QUAD_BYTES * j, _mm512_sub_epi8(w[j], z));
  }
}

// Their scales as f32[3][16] each: d, -MAGIC d, m.
template <int PLANE, int SCALE>
void unpack_scales(const PackedMatrix* m, int64_t panel, int64_t b0, int64_t b1, float* scales) {
  const uint8_t* records = m->data + panel * m->panel_bytes + m->n_cols / BLOCK_COLS * BLOCK_BYTES<PLANE>;
  const uint8_t* record = records + b0 / RECORD_BLOCKS<SCALE> * RECORD_BYTES<SCALE>;
  const __m512 magic = _mm512_set1_ps(-MAGIC);
  for (int64_t b = b0; b < b1; b += RECORD_BLOCKS<SCALE>, record += RECORD_BYTES<SCALE>)
    for (int sub = 0; sub < RECORD_BLOCKS<SCALE> * SUBS<SCALE>; ++sub, scales += 3 * N) {
      __m512 d, minimum = _mm512_setzero_ps();
      load_scale<SCALE>(record, sub, &d, &minimum);
      _mm512_store_ps(scales, d);
      _mm512_store_ps(scales + N, _mm512_mul_ps(magic, d));
      if constexpr (HAS_MIN<SCALE>) _mm512_store_ps(scales + 2 * N, minimum);
    }
}

}  // namespace
}  // namespace cext
