// The row kernels, written once over the vectors of simd_<isa>.h, which the including file chooses. Tails are masked:
// the arithmetic of an element never depends on where a task begins or ends.
#pragma once
#include "rotate.h"
#include "rows.h"
#include "simd_math.h"

namespace cext {
namespace {

// f(i, n): n lanes at element i; all VF_W but in the last call.
template <typename F>
inline void each_vector(int64_t n, F f) {
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) f(i, (int64_t)VF_W);
  if (i < n) f(i, n - i);
}

template <typename F>
inline void map_one(const float* x, int64_t n, float* out, F f) {
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) vf_store(out + i, f(vf_load(x + i)));
  if (i < n) vf_store_n(out + i, f(vf_load_n(x + i, n - i)), n - i);
}

template <typename F>
inline void map_two(const float* a, const float* b, int64_t n, float* out, F f) {
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) vf_store(out + i, f(vf_load(a + i), vf_load(b + i)));
  if (i < n) vf_store_n(out + i, f(vf_load_n(a + i, n - i), vf_load_n(b + i, n - i)), n - i);
}

// Sum of f(x) over a row, in an order fixed by n alone; lanes past n are left out.
template <typename F>
inline float sum_row(const float* x, int64_t n, F f) {
  VF s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
  int64_t i = 0;
  for (; i + 4 * VF_W <= n; i += 4 * VF_W) {
    s0 = f(vf_load(x + i), s0);
    s1 = f(vf_load(x + i + VF_W), s1);
    s2 = f(vf_load(x + i + 2 * VF_W), s2);
    s3 = f(vf_load(x + i + 3 * VF_W), s3);
  }
  for (; i + VF_W <= n; i += VF_W) s0 = f(vf_load(x + i), s0);
  float tail = 0.0f;
  if (i < n) {
    float part[VF_W];
    vf_store(part, f(vf_load_n(x + i, n - i), vf_zero()));
    for (int64_t j = 0; j < n - i; ++j) tail += part[j];
  }
  return vf_hsum(vf_add(vf_add(s0, s1), vf_add(s2, s3))) + tail;
}

inline float sum_squares(const float* x, int64_t n) {
  return sum_row(x, n, [](VF v, VF s) { return vf_fma(v, v, s); });
}

inline float square_root(float x) {
  float root[VF_W];
  vf_store(root, vf_sqrt(vf_set1(x)));
  return root[0];
}

void rms_norm(const float* x, int64_t ldx, const float* w, float eps, int64_t n_rows, int64_t n, float* out,
              int64_t ld_out) {
  for (int64_t r = 0; r < n_rows; ++r, x += ldx, out += ld_out) {
    const VF s = vf_set1(1.0f / square_root(sum_squares(x, n) / (float)n + eps));
    if (w)
      map_two(x, w, n, out, [s](VF v, VF weight) { return vf_mul(vf_mul(v, s), weight); });
    else
      map_one(x, n, out, [s](VF v) { return vf_mul(v, s); });
  }
}

void layer_norm(const float* x, int64_t ldx, const float* w, const float* b, float eps, int64_t n_rows, int64_t n,
                float* out, int64_t ld_out) {
  for (int64_t r = 0; r < n_rows; ++r, x += ldx, out += ld_out) {
    const VF mean = vf_set1(sum_row(x, n, [](VF v, VF s) { return vf_add(v, s); }) / (float)n);
    const float var = sum_row(x, n, [mean](VF v, VF s) {
                        const VF c = vf_sub(v, mean);
                        return vf_fma(c, c, s);
                      }) / (float)n;
    const VF s = vf_set1(1.0f / square_root(var + eps));
    each_vector(n, [=](int64_t i, int64_t m) {
      VF v = vf_mul(vf_sub(vf_load_n(x + i, m), mean), s);
      if (w) v = vf_mul(v, vf_load_n(w + i, m));
      if (b) v = vf_add(v, vf_load_n(b + i, m));
      vf_store_n(out + i, v, m);
    });
  }
}

void l2_norm(const float* x, int64_t ldx, float eps, int64_t n_rows, int64_t n, float* out, int64_t ld_out) {
  for (int64_t r = 0; r < n_rows; ++r, x += ldx, out += ld_out) {
    const float length = square_root(sum_squares(x, n));
    const VF s = vf_set1(1.0f / (length > eps ? length : eps));
    map_one(x, n, out, [s](VF v) { return vf_mul(v, s); });
  }
}

void rope(float* x, int64_t ldx, int64_t n_tokens, int64_t n_head, int64_t d, int32_t kind, int64_t n_rot,
          const float* tables) {
  if (kind == ROPE_NONE) return;
  for (int64_t t = 0; t < n_tokens; ++t)
    for (int64_t h = 0; h < n_head; ++h) rotate_head(x + t * ldx + h * d, kind, n_rot, tables + t * n_rot);
}

void add(const float* a, const float* b, int64_t n, float* out) {
  map_two(a, b, n, out, [](VF u, VF v) { return vf_add(u, v); });
}

void mul(const float* a, const float* b, int64_t n, float* out) {
  map_two(a, b, n, out, [](VF u, VF v) { return vf_mul(u, v); });
}

void scale(const float* x, float s, int64_t n, float* out) {
  const VF f = vf_set1(s);
  map_one(x, n, out, [f](VF v) { return vf_mul(v, f); });
}

void add_row(const float* x, int64_t ldx, const float* b, int64_t n_rows, int64_t n, float* out, int64_t ld_out) {
  for (int64_t r = 0; r < n_rows; ++r) add(x + r * ldx, b, n, out + r * ld_out);
}

inline VF relu_of(VF x) { return vf_max(vf_zero(), x); }

// Calls f with the function that `op` names, so that the choice is made once per call and not per vector.
template <typename F>
inline void with_unary(int32_t op, F f) {
  switch (op) {
    case UNARY_SILU: return f([](VF x) { return vf_silu(x); });
    case UNARY_GELU: return f([](VF x) { return vf_gelu(x); });
    case UNARY_GELU_ERF: return f([](VF x) { return vf_gelu_erf(x); });
    case UNARY_GELU_QUICK: return f([](VF x) { return vf_gelu_quick(x); });
    case UNARY_RELU: return f([](VF x) { return relu_of(x); });
    case UNARY_RELU_SQR: return f([](VF x) { return vf_mul(relu_of(x), relu_of(x)); });
    case UNARY_SIGMOID: return f([](VF x) { return vf_sigmoid(x); });
    case UNARY_TANH: return f([](VF x) { return vf_tanh(x); });
    case UNARY_SOFTPLUS: return f([](VF x) { return vf_softplus(x); });
    case UNARY_EXP: return f([](VF x) { return vf_exp(x); });
    case UNARY_NEG: return f([](VF x) { return vf_neg(x); });
    default: return;
  }
}

void unary(int32_t op, const float* x, int64_t n, float* out) {
  with_unary(op, [=](auto f) { map_one(x, n, out, f); });
}

void glu(int32_t op, const float* gate, const float* up, int64_t n, float* out) {
  with_unary(op, [=](auto f) { map_two(gate, up, n, out, [f](VF g, VF u) { return vf_mul(f(g), u); }); });
}

void softcap(const float* x, float cap, int64_t n, float* out) {
  const VF c = vf_set1(cap), inverse = vf_set1(1.0f / cap);
  map_one(x, n, out, [=](VF v) { return vf_mul(c, vf_tanh(vf_mul(v, inverse))); });
}

void softmax(const float* x, int64_t ldx, const float* mask, int64_t ld_mask, float scale, int64_t n_rows, int64_t n,
             float* out, int64_t ld_out) {
  const float lowest = -__builtin_inff();
  const VF s = vf_set1(scale);
  for (int64_t r = 0; r < n_rows; ++r, x += ldx, out += ld_out) {
    const float* row_mask = mask ? mask + r * ld_mask : nullptr;
    float largest = lowest;
    each_vector(n, [&](int64_t i, int64_t m) {
      VF v = vf_mul(vf_load_n(x + i, m), s);
      if (row_mask) v = vf_add(v, vf_load_n(row_mask + i, m));
      vf_store_n(out + i, v, m);
    });
    VF top = vf_set1(lowest);
    int64_t i = 0;
    for (; i + VF_W <= n; i += VF_W) top = vf_max(vf_load(out + i), top);
    largest = vf_hmax(top);
    for (; i < n; ++i) largest = out[i] > largest ? out[i] : largest;
    if (largest == lowest) {
      for (i = 0; i < n; ++i) out[i] = out[i] == out[i] ? 0.0f : out[i];
      continue;
    }
    const VF shift = vf_set1(largest);
    map_one(out, n, out, [shift](VF v) { return vf_exp(vf_sub(v, shift)); });
    const float total = sum_row(out, n, [](VF v, VF sum) { return vf_add(sum, v); });
    const VF norm = vf_set1(1.0f / total);
    map_one(out, n, out, [norm](VF v) { return vf_mul(v, norm); });
  }
}

int64_t argmax(const float* x, int64_t n) {
  VF top = vf_set1(-__builtin_inff());
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) top = vf_max(vf_load(x + i), top);
  float best = vf_hmax(top);
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (i = 0; i < n; ++i)
    if (x[i] == best) return i;
  return -1;
}

// NUMERICS: 0 * x is 0 for every finite x and NaN for the others.
int all_finite(const float* x, int64_t n) {
  const float sum = sum_row(x, n, [](VF v, VF s) { return vf_fma(v, vf_zero(), s); });
  return sum == sum;
}

constexpr RowKernels kRowKernels = {rms_norm, layer_norm, l2_norm, rope,    add,     mul,    scale,
                                    add_row,  unary,      glu,     softcap, softmax, argmax, all_finite};

}  // namespace
}  // namespace cext
