// Activations to 8 bits with AVX2, eight blocks at a time: the same bits as the scalar version.
#pragma once
#include "intrinsics.h"
#include "matmul.h"
#include "panel.h"

namespace cext {
namespace {

constexpr int GROUP_BLOCKS = 8;
constexpr int GROUP_COLS = GROUP_BLOCKS * BLOCK_COLS;

struct QuantizedGroup {  // where a group's results go; each of GROUP_BLOCKS blocks
  int8_t* q;
  float *d, *s, *s16, *sum, *sum16;
};

// Lane i: the largest of the eight lanes of v[i].
CEXT_INLINE __m256i largest_of_each(const __m256i* v) {
  __m256i pair[4], four[2];
  for (int i = 0; i < 4; ++i)  // lanes: 2i low, 2i+1 low, ... by 64 bits
    pair[i] = _mm256_max_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
  for (int i = 0; i < 2; ++i)
    four[i] = _mm256_max_epi32(_mm256_unpacklo_epi64(pair[2 * i], pair[2 * i + 1]),
                               _mm256_unpackhi_epi64(pair[2 * i], pair[2 * i + 1]));
  return _mm256_max_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20),
                          _mm256_permute2x128_si256(four[0], four[1], 0x31));
}

// The sums of the sixteen halves (16 bytes each) of eight blocks, in order: two vectors.
CEXT_INLINE void sums_of_halves(const __m256i* bytes, __m256i* sums) {
  const __m256i ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  __m256i four[8];  // a block's sums of four bytes
  for (int i = 0; i < 8; ++i) four[i] = _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, bytes[i]), ones16);
  for (int i = 0; i < 2; ++i) {
    const __m256i* f = four + 4 * i;
    const __m256i a = _mm256_hadd_epi32(f[0], f[1]), b = _mm256_hadd_epi32(f[2], f[3]);
    const __m256i halves = _mm256_hadd_epi32(a, b);  // low lane: first halves of four blocks, high lane: second halves
    sums[i] = _mm256_permutevar8x32_epi32(halves, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  }
}

CEXT_INLINE void quantize_group(const float* x, const QuantizedGroup& to) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i tops[8];
  for (int b = 0; b < 8; ++b) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i)
      top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 32 * b + 8 * i)), magnitude));
    tops[b] = top;
  }
  // NUMERICS: the largest |x| by its bits, so that a NaN is the largest and shows in d.
  const __m256i top = largest_of_each(tops);
  const __m256 amax = _mm256_castsi256_ps(top);
  const __m256 small = _mm256_cmp_ps(amax, _mm256_set1_ps(1e-30f), _CMP_LT_OQ);
  const __m256 plain = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), top));
  const __m256 d = _mm256_andnot_ps(small, _mm256_div_ps(amax, _mm256_set1_ps(127.0f)));
  const __m256 inverse = _mm256_andnot_ps(small, _mm256_and_ps(plain, _mm256_div_ps(_mm256_set1_ps(127.0f), amax)));
  alignas(32) float inverses[8];
  alignas(32) int32_t keep[8];  // no bits of q where x is not finite
  _mm256_store_ps(inverses, inverse);
  _mm256_store_si256((__m256i*)keep, _mm256_castps_si256(plain));
  _mm256_storeu_ps(to.d, d);
  __m256i bytes[8];
  for (int b = 0; b < 8; ++b) {
    const __m256 scale = _mm256_set1_ps(inverses[b]);
    __m256i q[4];
    for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 32 * b + 8 * i), scale));
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    bytes[b] = _mm256_and_si256(ordered, _mm256_set1_epi32(keep[b]));
    _mm256_storeu_si256((__m256i*)(to.q + 32 * b), bytes[b]);
  }
  __m256i halves[2];
  sums_of_halves(bytes, halves);
  const __m256 sum0 = _mm256_cvtepi32_ps(halves[0]), sum1 = _mm256_cvtepi32_ps(halves[1]);
  _mm256_storeu_ps(to.sum16, sum0);
  _mm256_storeu_ps(to.sum16 + 8, sum1);
  _mm256_storeu_ps(to.s16, _mm256_mul_ps(sum0, _mm256_permutevar8x32_ps(d, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3))));
  _mm256_storeu_ps(to.s16 + 8, _mm256_mul_ps(sum1, _mm256_permutevar8x32_ps(d, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))));
  const __m256 pairs = _mm256_hadd_ps(sum0, sum1);  // exact: whole numbers
  const __m256 sum = _mm256_permutevar8x32_ps(pairs, _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7));
  _mm256_storeu_ps(to.sum, sum);
  _mm256_storeu_ps(to.s, _mm256_mul_ps(d, sum));
}

// What a group's q leave of x f32[GROUP_COLS], rounded once.
CEXT_INLINE void rest_of_group(const float* x, const QuantizedGroup& of, float* rest) {
  for (int i = 0; i < GROUP_COLS; i += 8) {
    const __m256 q = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(of.q + i))));
    _mm256_storeu_ps(rest + i, _mm256_fnmadd_ps(_mm256_set1_ps(of.d[i / BLOCK_COLS]), q, _mm256_loadu_ps(x + i)));
  }
}

// The terms of the n blocks from b of token t, x f32[GROUP_COLS] with zeros behind the row's end.
CEXT_INLINE void quantize_terms(const float* x, const ActQ8* dst, int64_t t, int64_t b, int64_t n) {
  float rest[GROUP_COLS];
  for (int64_t row = t * dst->n_terms; row < (t + 1) * dst->n_terms; ++row) {
    const int64_t at = row * dst->n_blocks + b;
    const QuantizedGroup to = {dst->q + row * dst->ld_q + b * BLOCK_COLS, dst->d + at,   dst->s + at,
                               dst->s16 + 2 * at,                         dst->sum + at, dst->sum16 + 2 * at};
    float d[8], s[8], s16[16], sum[8], sum16[16];
    int8_t q[GROUP_COLS];
    const QuantizedGroup done = n < GROUP_BLOCKS ? QuantizedGroup{q, d, s, s16, sum, sum16} : to;
    quantize_group(x, done);
    if (n < GROUP_BLOCKS) {
      const size_t bytes = (size_t)n * sizeof(float);
      __builtin_memcpy(to.q, q, (size_t)(n * BLOCK_COLS));
      __builtin_memcpy(to.d, d, bytes);
      __builtin_memcpy(to.s, s, bytes);
      __builtin_memcpy(to.sum, sum, bytes);
      __builtin_memcpy(to.s16, s16, 2 * bytes);
      __builtin_memcpy(to.sum16, sum16, 2 * bytes);
    }
    if (row + 1 == (t + 1) * dst->n_terms) break;
    rest_of_group(x, done, rest);
    x = rest;
  }
}

void quantize_rows(const float* x, int64_t ldx, const ActQ8* dst, int64_t t0, int64_t t1) {
  for (int64_t t = t0; t < t1; ++t)
    for (int64_t b = 0; b < dst->n_blocks; b += GROUP_BLOCKS) {
      const int64_t n = dst->n_blocks - b < GROUP_BLOCKS ? dst->n_blocks - b : GROUP_BLOCKS;
      const int64_t n_cols = dst->n_cols - b * BLOCK_COLS;
      const float* from = x + t * ldx + b * BLOCK_COLS;
      if (n_cols >= GROUP_COLS) {
        quantize_terms(from, dst, t, b, n);
        continue;
      }
      float values[GROUP_COLS];
      __builtin_memset(values + n_cols, 0, (size_t)(GROUP_COLS - n_cols) * sizeof(float));
      __builtin_memcpy(values, from, (size_t)n_cols * sizeof(float));
      quantize_terms(values, dst, t, b, n);
    }
}

}  // namespace
}  // namespace cext
