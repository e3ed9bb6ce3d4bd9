// Vectors of 8 floats in AVX2, FMA and F16C. The same names as simd_scalar.h, which says what each does.
#pragma once
#include <cstdint>

#include "intrinsics.h"
#include "simd_bytes.h"

namespace cext {
namespace {

constexpr int VF_W = 8;
constexpr int VF_REGS = 16;
using VF = __m256;
using VM = __m256;

inline __m256i vf_first(int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), lane);
}
inline __m256i vf_i256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i vf_i128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }

inline VF vf_set1(float x) { return _mm256_set1_ps(x); }
inline void vf_fetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }
inline VF vf_zero() { return _mm256_setzero_ps(); }
inline VF vf_load(const float* p) { return _mm256_loadu_ps(p); }
inline VF vf_load_n(const float* p, int64_t n) { return _mm256_maskload_ps(p, vf_first(n)); }
inline void vf_store(float* p, VF a) { _mm256_storeu_ps(p, a); }
inline void vf_store_n(float* p, VF a, int64_t n) { _mm256_maskstore_ps(p, vf_first(n), a); }
inline VF vf_load_f16(const uint16_t* p) { return _mm256_cvtph_ps(vf_i128(p)); }
inline VF vf_load_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(vf_i128(p)), 16));
}
inline VF vf_load_i8(const int8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
inline void vf_store_f16(uint16_t* p, VF a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void vf_store_bf16(uint16_t* p, VF a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m256i h = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(h, h), 0x08);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
}
inline VF vf_add(VF a, VF b) { return _mm256_add_ps(a, b); }
inline VF vf_sub(VF a, VF b) { return _mm256_sub_ps(a, b); }
inline VF vf_mul(VF a, VF b) { return _mm256_mul_ps(a, b); }
inline VF vf_div(VF a, VF b) { return _mm256_div_ps(a, b); }
inline VF vf_fma(VF a, VF b, VF c) { return _mm256_fmadd_ps(a, b, c); }
inline VF vf_fnma(VF a, VF b, VF c) { return _mm256_fnmadd_ps(a, b, c); }
inline VF vf_min(VF a, VF b) { return _mm256_min_ps(a, b); }
inline VF vf_max(VF a, VF b) { return _mm256_max_ps(a, b); }
inline VF vf_sqrt(VF a) { return _mm256_sqrt_ps(a); }
inline VF vf_neg(VF a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
inline VF vf_abs(VF a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline VF vf_round(VF a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// Two steps, so that results beyond the exponent of one factor (denormals, infinity) come out.
inline VF vf_scale2(VF a, VF n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256i rest = _mm256_sub_epi32(whole, half);
  const __m256 f2 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
  return _mm256_mul_ps(_mm256_mul_ps(a, f1), f2);
}
inline VF vf_recip(VF a) { return _mm256_div_ps(_mm256_set1_ps(1.0f), a); }
// At -127 the exponent of 1 becomes that of 0.
constexpr float kExp2Lowest = -127.0f;
inline VF vf_fraction(VF x) { return _mm256_sub_ps(x, _mm256_floor_ps(x)); }
inline VF vf_scale_floor(VF a, VF x) {
  const __m256i n = _mm256_slli_epi32(_mm256_cvtps_epi32(_mm256_floor_ps(x)), 23);
  const VF scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), n));
  return _mm256_blendv_ps(scaled, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
inline VM vf_lt(VF a, VF b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
inline VM vf_eq(VF a, VF b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
inline VF vf_select(VM m, VF yes, VF no) { return _mm256_blendv_ps(no, yes, m); }
inline VM vf_within(int32_t x, const int32_t* lo, const int32_t* hi) {
  const __m256i v = _mm256_set1_epi32(x);
  const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(vf_i256(lo), v), _mm256_cmpgt_epi32(v, vf_i256(hi)));
  return _mm256_castsi256_ps(_mm256_xor_si256(out, _mm256_set1_epi32(-1)));
}
inline VM vf_inside(const int32_t* x, int32_t lo, int32_t hi) {
  const __m256i v = vf_i256(x);
  const __m256i out = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(lo), v),
                                      _mm256_cmpgt_epi32(v, _mm256_set1_epi32(hi)));
  return _mm256_castsi256_ps(_mm256_xor_si256(out, _mm256_set1_epi32(-1)));
}
inline VF vf_from_i32(const int32_t* p) { return _mm256_cvtepi32_ps(vf_i256(p)); }
inline float vf_hsum(VF a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
inline float vf_hmax(VF a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
CEXT_INLINE VF vf_sums(const VF* a) {
  VF t[4], u[2];
  for (int i = 0; i < 4; ++i) {
    const VF lo = _mm256_permute2f128_ps(a[i], a[i + 4], 0x20), hi = _mm256_permute2f128_ps(a[i], a[i + 4], 0x31);
    t[i] = _mm256_add_ps(lo, hi);  // halves: a[i], a[i + 4]
  }
  for (int i = 0; i < 2; ++i) {
    const __m256d x = _mm256_castps_pd(t[i]), y = _mm256_castps_pd(t[i + 2]);
    u[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
  }
  const VF w = _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
  return _mm256_permute_ps(w, 0xd8);  // quarters came as 0 2 1 3
}
CEXT_INLINE void vf_transpose(VF* a) {
  VF t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {  // u[4 h + q] holds column q of each half, of rows 4 h .. 4 h + 3
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int q = 0; q < 4; ++q) {
    a[q] = _mm256_permute2f128_ps(u[q], u[q + 4], 0x20);
    a[q + 4] = _mm256_permute2f128_ps(u[q], u[q + 4], 0x31);
  }
}
inline float vf_first_lane(VF a) { return _mm256_cvtss_f32(a); }
inline float vf_half(const uint8_t* p) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(*reinterpret_cast<const uint16_t*>(p))));
}
inline VF vf_swap_pairs(VF a) { return _mm256_permute_ps(a, 0xb1); }
inline VF vf_load_twice(const float* p) {
  const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index);
}
inline VF vf_negate_even(VF a) {
  return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi64x((long long)0x0000000080000000ull)));
}

}  // namespace
}  // namespace cext
