// Row kernels: everything in a layer that is not a matrix product or attention, in f32. No result depends on how rows
// or elements are split over threads. `out` may be the input itself; other overlaps are not allowed.
#pragma once
#include <cstdint>

#include "rope.h"

namespace cext {

enum UnaryOp : int32_t {
  UNARY_SILU = 0, UNARY_GELU = 1 /* tanh form */, UNARY_GELU_ERF = 2, UNARY_GELU_QUICK = 3, UNARY_RELU = 4,
  UNARY_RELU_SQR = 5, UNARY_SIGMOID = 6, UNARY_TANH = 7, UNARY_SOFTPLUS = 8, UNARY_EXP = 9, UNARY_NEG = 10,
  UNARY_COUNT = 11,
};

// ld* = floats from one row to the next. n = floats in a row.
struct RowKernels {
  // out = x / sqrt(mean(x^2) + eps) * w; w[n] may be null. Per-head norms: one row per head, n = head size.
  void (*rms_norm)(const float* x, int64_t ldx, const float* w, float eps, int64_t n_rows, int64_t n, float* out,
                   int64_t ld_out);
  // out = (x - mean) / sqrt(var + eps) * w + b; w[n], b[n] may be null.
  void (*layer_norm)(const float* x, int64_t ldx, const float* w, const float* b, float eps, int64_t n_rows, int64_t n,
                     float* out, int64_t ld_out);
  // out = x / max(sqrt(sum(x^2)), eps)
  void (*l2_norm)(const float* x, int64_t ldx, float eps, int64_t n_rows, int64_t n, float* out, int64_t ld_out);
  // Rotate the first n_rot of each head's d floats in place. x: [n_tokens][n_head][d], heads `d` apart, tokens `ldx`
  // apart; tables: [n_tokens][n_rot] of rope_tables. ROPE_NONE does nothing.
  void (*rope)(float* x, int64_t ldx, int64_t n_tokens, int64_t n_head, int64_t d, int32_t kind, int64_t n_rot,
               const float* tables);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*mul)(const float* a, const float* b, int64_t n, float* out);
  void (*scale)(const float* x, float s, int64_t n, float* out);
  // out[r] = x[r] + b, b[n]
  void (*add_row)(const float* x, int64_t ldx, const float* b, int64_t n_rows, int64_t n, float* out, int64_t ld_out);
  void (*unary)(int32_t op, const float* x, int64_t n, float* out);
  // out = op(gate) * up
  void (*glu)(int32_t op, const float* gate, const float* up, int64_t n, float* out);
  // out = cap * tanh(x / cap)
  void (*softcap)(const float* x, float cap, int64_t n, float* out);
  // out = softmax(x * scale + mask); mask rows may be null; a row that is all -inf gives zeros.
  void (*softmax)(const float* x, int64_t ldx, const float* mask, int64_t ld_mask, float scale, int64_t n_rows,
                  int64_t n, float* out, int64_t ld_out);
  // Index of the first largest value; NaN never wins; -1 where n is 0 or all are NaN.
  int64_t (*argmax)(const float* x, int64_t n);
  // 1 where every value is finite, else 0.
  int (*all_finite)(const float* x, int64_t n);
};

const RowKernels& row_kernels();              // for isa_in_use()
const RowKernels& row_kernels_for(int isa);   // scalar where the build or the CPU lacks it

}  // namespace cext
