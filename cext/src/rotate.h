// The rotation of one head by a table of cosines and sines, over the vectors of simd_<isa>.h.
#pragma once
#include <cstdint>

#include "rope.h"

namespace cext {
namespace {

inline void rotate_neox(float* x, int64_t n_pairs, const float* c, const float* s) {
  int64_t i = 0;
  for (; i + VF_W <= n_pairs; i += VF_W) {
    const VF a = vf_load(x + i), b = vf_load(x + n_pairs + i), cs = vf_load(c + i), sn = vf_load(s + i);
    vf_store(x + i, vf_fnma(b, sn, vf_mul(a, cs)));
    vf_store(x + n_pairs + i, vf_fma(a, sn, vf_mul(b, cs)));
  }
  for (; i < n_pairs; ++i) {
    const float a = x[i], b = x[n_pairs + i];
    x[i] = a * c[i] - b * s[i];
    x[n_pairs + i] = b * c[i] + a * s[i];
  }
}

inline void rotate_norm(float* x, int64_t n_pairs, const float* c, const float* s) {
  int64_t i = 0;
  for (; i + VF_W / 2 <= n_pairs; i += VF_W / 2) {
    const VF v = vf_load(x + 2 * i);
    const VF turned = vf_negate_even(vf_swap_pairs(v));
    vf_store(x + 2 * i, vf_fma(turned, vf_load_twice(s + i), vf_mul(v, vf_load_twice(c + i))));
  }
  for (; i < n_pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * c[i] - b * s[i];
    x[2 * i + 1] = b * c[i] + a * s[i];
  }
}

inline void rotate_head(float* x, int32_t kind, int64_t n_rot, const float* table) {
  if (kind == ROPE_NORM)
    rotate_norm(x, n_rot / 2, table, table + n_rot / 2);
  else
    rotate_neox(x, n_rot / 2, table, table + n_rot / 2);
}

}  // namespace
}  // namespace cext
