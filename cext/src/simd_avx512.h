// Vectors of 16 floats in AVX-512. The same names as simd_scalar.h, which says what each does.
#pragma once
#include <cstdint>

#include "intrinsics.h"
#include "simd_bytes.h"

namespace cext {
namespace {

constexpr int VF_W = 16;
constexpr int VF_REGS = 32;
using VF = __m512;
using VM = __mmask16;

inline __mmask16 vf_first(int64_t n) { return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1u); }

inline VF vf_set1(float x) { return _mm512_set1_ps(x); }
inline void vf_fetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
inline VF vf_zero() { return _mm512_setzero_ps(); }
inline VF vf_load(const float* p) { return _mm512_loadu_ps(p); }
inline VF vf_load_n(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(vf_first(n), p); }
inline void vf_store(float* p, VF a) { _mm512_storeu_ps(p, a); }
inline void vf_store_n(float* p, VF a, int64_t n) { _mm512_mask_storeu_ps(p, vf_first(n), a); }
inline VF vf_load_f16(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline VF vf_load_bf16(const uint16_t* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
inline VF vf_load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline void vf_store_f16(uint16_t* p, VF a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// NUMERICS: in integers, since the bf16 instruction flushes denormals and the scalar reference does not.
inline void vf_store_bf16(uint16_t* p, VF a) {
  const __m512i bits = _mm512_castps_si512(a);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
  const __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
  const __m512i h = _mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(h));
}
inline VF vf_add(VF a, VF b) { return _mm512_add_ps(a, b); }
inline VF vf_sub(VF a, VF b) { return _mm512_sub_ps(a, b); }
inline VF vf_mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
inline VF vf_div(VF a, VF b) { return _mm512_div_ps(a, b); }
inline VF vf_fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
inline VF vf_fnma(VF a, VF b, VF c) { return _mm512_fnmadd_ps(a, b, c); }
inline VF vf_min(VF a, VF b) { return _mm512_min_ps(a, b); }
inline VF vf_max(VF a, VF b) { return _mm512_max_ps(a, b); }
inline VF vf_sqrt(VF a) { return _mm512_sqrt_ps(a); }
inline VF vf_abs(VF a) { return _mm512_abs_ps(a); }
inline VF vf_neg(VF a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
inline VF vf_round(VF a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline VF vf_scale2(VF a, VF n) { return _mm512_scalef_ps(a, n); }
inline VF vf_recip(VF a) {
  const VF r = _mm512_rcp14_ps(a);
  return _mm512_mul_ps(r, _mm512_fnmadd_ps(a, r, _mm512_set1_ps(2.0f)));
}
constexpr float kExp2Lowest = -200.0f;
inline VF vf_fraction(VF x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
inline VF vf_scale_floor(VF a, VF x) { return _mm512_scalef_ps(a, x); }
inline VM vf_lt(VF a, VF b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline VM vf_eq(VF a, VF b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
inline VF vf_select(VM m, VF yes, VF no) { return _mm512_mask_blend_ps(m, no, yes); }
inline VM vf_within(int32_t x, const int32_t* lo, const int32_t* hi) {
  const __m512i v = _mm512_set1_epi32(x);
  return _mm512_cmple_epi32_mask(_mm512_loadu_si512(lo), v) & _mm512_cmple_epi32_mask(v, _mm512_loadu_si512(hi));
}
inline VM vf_inside(const int32_t* x, int32_t lo, int32_t hi) {
  const __m512i v = _mm512_loadu_si512(x);
  return _mm512_cmple_epi32_mask(_mm512_set1_epi32(lo), v) & _mm512_cmple_epi32_mask(v, _mm512_set1_epi32(hi));
}
inline VF vf_from_i32(const int32_t* p) { return _mm512_cvtepi32_ps(_mm512_loadu_si512(p)); }
inline float vf_hsum(VF a) { return _mm512_reduce_add_ps(a); }
inline float vf_hmax(VF a) { return _mm512_reduce_max_ps(a); }
CEXT_INLINE VF vf_sums(const VF* a) {
  VF t[8], u[4], v[2];
  for (int i = 0; i < 8; ++i)  // halves: a[i], a[i + 8]
    t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 8], 0x44), _mm512_shuffle_f32x4(a[i], a[i + 8], 0xee));
  for (int i = 0; i < 4; ++i)  // quarters: a[i], a[i + 8], a[i + 4], a[i + 12]
    u[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd));
  for (int i = 0; i < 2; ++i) {
    const __m512d x = _mm512_castps_pd(u[i]), y = _mm512_castps_pd(u[i + 2]);
    v[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
  }
  const VF w = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xdd));
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15), w);
}
CEXT_INLINE void vf_transpose(VF* a) {
  VF t[16], u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // u[4 h + q] holds column q of each quarter, of rows 4 h .. 4 h + 3
    u[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int q = 0; q < 4; ++q) {
    const VF x = _mm512_shuffle_f32x4(u[q], u[q + 4], 0x44), y = _mm512_shuffle_f32x4(u[q + 8], u[q + 12], 0x44);
    const VF z = _mm512_shuffle_f32x4(u[q], u[q + 4], 0xee), w = _mm512_shuffle_f32x4(u[q + 8], u[q + 12], 0xee);
    a[q] = _mm512_shuffle_f32x4(x, y, 0x88);
    a[q + 4] = _mm512_shuffle_f32x4(x, y, 0xdd);
    a[q + 8] = _mm512_shuffle_f32x4(z, w, 0x88);
    a[q + 12] = _mm512_shuffle_f32x4(z, w, 0xdd);
  }
}
inline float vf_first_lane(VF a) { return _mm512_cvtss_f32(a); }
inline float vf_half(const uint8_t* p) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(*reinterpret_cast<const uint16_t*>(p))));
}
inline VF vf_swap_pairs(VF a) { return _mm512_permute_ps(a, 0xb1); }
inline VF vf_load_twice(const float* p) {
  const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
inline VF vf_negate_even(VF a) {
  return _mm512_xor_ps(a, _mm512_castsi512_ps(_mm512_set1_epi64((long long)0x0000000080000000ull)));
}

}  // namespace
}  // namespace cext
