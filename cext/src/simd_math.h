// Elementary functions on vectors of floats, over whichever simd_<isa>.h was included before.
// exp within 2 ulp, tanh within 3; the others follow from them. NaN stays NaN.
#pragma once

namespace cext {
namespace {

// Source: Cody-Waite reduction by ln 2; polynomial of Cephes expf.
inline VF vf_exp(VF x) {
  x = vf_max(vf_set1(-104.0f), vf_min(vf_set1(89.0f), x));
  const VF n = vf_round(vf_mul(x, vf_set1(1.44269504088896341f)));
  VF r = vf_fnma(n, vf_set1(0.693359375f), x);
  r = vf_fnma(n, vf_set1(-2.12194440e-4f), r);
  VF p = vf_set1(1.9875691500e-4f);
  p = vf_fma(p, r, vf_set1(1.3981999507e-3f));
  p = vf_fma(p, r, vf_set1(8.3334519073e-3f));
  p = vf_fma(p, r, vf_set1(4.1665795894e-2f));
  p = vf_fma(p, r, vf_set1(1.6666665459e-1f));
  p = vf_fma(p, r, vf_set1(5.0000001201e-1f));
  p = vf_add(vf_fma(p, vf_mul(r, r), r), vf_set1(1.0f));
  return vf_scale2(p, n);
}

// 2^x for x <= 0, relative error under 2e-7; exactly 0 for -infinity. Source: minimax polynomial over [0, 1), fitted.
CEXT_INLINE VF vf_exp2(VF x) {
  x = vf_max(vf_set1(kExp2Lowest), x);
  const VF f = vf_fraction(x);
  VF p = vf_set1(2.1612914861e-4f);
  p = vf_fma(p, f, vf_set1(1.2467846972e-3f));
  p = vf_fma(p, f, vf_set1(9.6754515543e-3f));
  p = vf_fma(p, f, vf_set1(5.5485282093e-2f));
  p = vf_fma(p, f, vf_set1(2.4022930860e-1f));
  p = vf_fma(p, f, vf_set1(6.9314706325e-1f));
  p = vf_fma(p, f, vf_set1(1.0f));
  return vf_scale_floor(p, x);
}

// 1 / (1 + exp(u))
inline VF vf_logistic(VF u) {
  const VF e = vf_exp(vf_min(vf_set1(87.0f), u));
  return vf_recip(vf_add(e, vf_set1(1.0f)));
}

// Source: polynomial of Cephes tanhf below 0.625, by exp above.
inline VF vf_tanh(VF x) {
  const VF a = vf_abs(x), z = vf_mul(x, x), one = vf_set1(1.0f);
  VF p = vf_set1(-5.70498872745e-3f);
  p = vf_fma(p, z, vf_set1(2.06390887954e-2f));
  p = vf_fma(p, z, vf_set1(-5.37397155531e-2f));
  p = vf_fma(p, z, vf_set1(1.33314422036e-1f));
  p = vf_fma(p, z, vf_set1(-3.33332819422e-1f));
  p = vf_fma(vf_mul(p, z), x, x);
  const VF far = vf_logistic(vf_add(a, a)), t = vf_fnma(vf_set1(2.0f), far, one);
  return vf_select(vf_lt(a, vf_set1(0.625f)), p, vf_select(vf_lt(x, vf_zero()), vf_neg(t), t));
}

inline VF vf_sigmoid(VF x) { return vf_logistic(vf_neg(x)); }

inline VF vf_silu(VF x) { return vf_mul(x, vf_logistic(vf_neg(x))); }

// x / 2 * (1 + tanh(u)), u = sqrt(2 / pi) * (x + 0.044715 x^3), written as x * sigmoid(2 u): no cancellation.
// Source: arXiv:1606.08415, section 2.
inline VF vf_gelu(VF x) {
  const VF cubic = vf_fma(vf_mul(x, x), vf_set1(0.044715f), vf_set1(1.0f));
  const VF u = vf_mul(vf_mul(x, vf_set1(1.5957691216057308f)), cubic);
  return vf_mul(x, vf_logistic(vf_neg(u)));
}

// erfc(a) for a >= 0, relative error under 2e-6. Source: Chebyshev fit of Numerical Recipes, section 6.2.
inline VF vf_erfc_positive(VF a) {
  constexpr float kFit[10] = {0.17087277f, -0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f,
                              -0.18628806f, 0.09678418f, 0.37409196f, 1.00002368f, -1.26551223f};
  const VF t = vf_div(vf_set1(1.0f), vf_fma(a, vf_set1(0.5f), vf_set1(1.0f)));
  VF p = vf_set1(kFit[0]);
  for (int i = 1; i < 10; ++i) p = vf_fma(p, t, vf_set1(kFit[i]));
  return vf_mul(t, vf_exp(vf_fnma(a, a, p)));
}

// x / 2 * (1 + erf(x / sqrt 2))
inline VF vf_gelu_erf(VF x) {
  const VF tail = vf_mul(vf_set1(0.5f), vf_erfc_positive(vf_mul(vf_abs(x), vf_set1(0.70710678f))));
  return vf_mul(x, vf_select(vf_lt(x, vf_zero()), tail, vf_sub(vf_set1(1.0f), tail)));
}

inline VF vf_gelu_quick(VF x) { return vf_mul(x, vf_logistic(vf_mul(x, vf_set1(-1.702f)))); }

// log(1 + exp(x)) = max(x, 0) + log(1 + u), u = exp(-|x|), by the series of 2 atanh(u / (2 + u)).
inline VF vf_softplus(VF x) {
  const VF u = vf_exp(vf_neg(vf_abs(x)));
  const VF s = vf_div(u, vf_add(u, vf_set1(2.0f))), z = vf_mul(s, s);
  VF p = vf_set1(1.0f / 15.0f);
  for (int k = 13; k >= 1; k -= 2) p = vf_fma(p, z, vf_set1(1.0f / (float)k));
  return vf_fma(vf_add(s, s), p, vf_max(vf_zero(), x));
}

}  // namespace
}  // namespace cext
