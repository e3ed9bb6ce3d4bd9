// Vectors of 8 floats in plain C: the reference for simd_avx2.h and simd_avx512.h, which define the same names.
// VF holds VF_W floats, VM a truth per lane. Everything is local to the including file.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

#define CEXT_INLINE inline

namespace cext {
namespace {

constexpr int VF_W = 8;
constexpr int VF_REGS = 16;  // registers to plan for
struct VF { float v[VF_W]; };
struct VM { bool v[VF_W]; };

#define CEXT_LANES(expr) \
  VF r;                  \
  for (int i = 0; i < VF_W; ++i) r.v[i] = (expr); \
  return r
#define CEXT_MASK(expr) \
  VM r;                 \
  for (int i = 0; i < VF_W; ++i) r.v[i] = (expr); \
  return r

inline VF vf_set1(float x) { CEXT_LANES(x); }
inline void vf_fetch(const void*) {}
inline VF vf_zero() { return vf_set1(0.0f); }
inline VF vf_load(const float* p) { CEXT_LANES(p[i]); }
inline VF vf_load_n(const float* p, int64_t n) { CEXT_LANES(i < n ? p[i] : 0.0f); }
inline void vf_store(float* p, VF a) { std::memcpy(p, a.v, sizeof a.v); }
inline void vf_store_n(float* p, VF a, int64_t n) {
  for (int i = 0; i < VF_W && i < n; ++i) p[i] = a.v[i];
}
inline VF vf_load_f16(const uint16_t* p) { CEXT_LANES(f16_to_f32(p[i])); }
inline VF vf_load_bf16(const uint16_t* p) { CEXT_LANES(bf16_to_f32(p[i])); }
inline VF vf_load_i8(const int8_t* p) { CEXT_LANES((float)p[i]); }
inline void vf_store_f16(uint16_t* p, VF a) {
  for (int i = 0; i < VF_W; ++i) p[i] = f32_to_f16(a.v[i]);
}
inline void vf_store_bf16(uint16_t* p, VF a) {
  for (int i = 0; i < VF_W; ++i) p[i] = f32_to_bf16(a.v[i]);
}
inline VF vf_add(VF a, VF b) { CEXT_LANES(a.v[i] + b.v[i]); }
inline VF vf_sub(VF a, VF b) { CEXT_LANES(a.v[i] - b.v[i]); }
inline VF vf_mul(VF a, VF b) { CEXT_LANES(a.v[i] * b.v[i]); }
inline VF vf_div(VF a, VF b) { CEXT_LANES(a.v[i] / b.v[i]); }
inline VF vf_fma(VF a, VF b, VF c) { CEXT_LANES(a.v[i] * b.v[i] + c.v[i]); }   // a * b + c
inline VF vf_fnma(VF a, VF b, VF c) { CEXT_LANES(c.v[i] - a.v[i] * b.v[i]); }  // c - a * b
inline VF vf_min(VF a, VF b) { CEXT_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }  // b where either is NaN
inline VF vf_max(VF a, VF b) { CEXT_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }  // b where either is NaN
inline VF vf_sqrt(VF a) { CEXT_LANES(std::sqrt(a.v[i])); }
inline VF vf_abs(VF a) { CEXT_LANES(std::fabs(a.v[i])); }
inline VF vf_neg(VF a) { CEXT_LANES(-a.v[i]); }
inline VF vf_round(VF a) { CEXT_LANES(std::nearbyint(a.v[i])); }  // to nearest even
// a * 2^n, n whole; too small gives 0 or a denormal, too large infinity.
inline VF vf_scale2(VF a, VF n) { CEXT_LANES(a.v[i] == a.v[i] ? std::ldexp(a.v[i], (int)n.v[i]) : a.v[i]); }
inline VF vf_recip(VF a) { CEXT_LANES(1.0f / a.v[i]); }  // within 2 ulp; NaN for infinities
// For 2^x: the fraction of x above its floor, and a * 2^floor(x). x >= kExp2Lowest, at which 1 * 2^x gives 0.
constexpr float kExp2Lowest = -200.0f;
inline VF vf_fraction(VF x) { CEXT_LANES(x.v[i] - std::floor(x.v[i])); }
inline VF vf_scale_floor(VF a, VF x) {
  CEXT_LANES(a.v[i] == a.v[i] ? std::ldexp(a.v[i], (int)std::floor(x.v[i])) : a.v[i]);
}
inline VM vf_lt(VF a, VF b) { CEXT_MASK(a.v[i] < b.v[i]); }
inline VM vf_eq(VF a, VF b) { CEXT_MASK(a.v[i] == b.v[i]); }
inline VF vf_select(VM m, VF yes, VF no) { CEXT_LANES(m.v[i] ? yes.v[i] : no.v[i]); }
// Lanes whose range [lo[i], hi[i]] holds x.
inline VM vf_within(int32_t x, const int32_t* lo, const int32_t* hi) { CEXT_MASK(lo[i] <= x && x <= hi[i]); }
// Lanes whose x[i] lies in [lo, hi].
inline VM vf_inside(const int32_t* x, int32_t lo, int32_t hi) { CEXT_MASK(lo <= x[i] && x[i] <= hi); }
inline VF vf_from_i32(const int32_t* p) { CEXT_LANES((float)p[i]); }
inline float vf_hsum(VF a) {
  for (int half = VF_W / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  return a.v[0];
}
// Lane i = the sum of a[i], every one added up in the same order.
inline VF vf_sums(const VF* a) { CEXT_LANES(vf_hsum(a[i])); }
// a[i] lane j <-> a[j] lane i
inline void vf_transpose(VF* a) {
  for (int i = 0; i < VF_W; ++i)
    for (int j = 0; j < i; ++j) {
      const float t = a[i].v[j];
      a[i].v[j] = a[j].v[i];
      a[j].v[i] = t;
    }
}
inline float vf_first_lane(VF a) { return a.v[0]; }
inline float vf_half(const uint8_t* p) {  // the f16 at p
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return f16_to_f32(h);
}
inline float vf_hmax(VF a) {
  float m = a.v[0];
  for (int i = 1; i < VF_W; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}
// (x0 x1 x2 x3 ..) -> (x1 x0 x3 x2 ..)
inline VF vf_swap_pairs(VF a) { CEXT_LANES(a.v[i ^ 1]); }
// Half a vector's worth at p, each twice: (p0 p0 p1 p1 ..)
inline VF vf_load_twice(const float* p) { CEXT_LANES(p[i / 2]); }
// -x in even lanes, x in odd lanes
inline VF vf_negate_even(VF a) { CEXT_LANES(i % 2 ? a.v[i] : -a.v[i]); }

// Low nibbles of 16 bytes, then high nibbles.
inline void split_nibbles(const uint8_t* qs, int8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = (int8_t)(qs[j] & 15);
    q[j + 16] = (int8_t)(qs[j] >> 4);
  }
}
// Bit j of the 32 at qh becomes bit 4 of q[j].
inline void add_fifth_bits(const uint8_t* qh, int8_t* q) {
  for (int j = 0; j < 32; ++j) q[j] = (int8_t)(q[j] | (qh[j / 8] >> (j % 8) & 1) << 4);
}
// q[j] = table[q[j]], 16 entries
inline void look_up(const int8_t* table, int8_t* q) {
  for (int j = 0; j < 32; ++j) q[j] = table[q[j]];
}

#undef CEXT_LANES
#undef CEXT_MASK

}  // namespace
}  // namespace cext
