// The products in plain C++: the reference that vector code is tested against, and the way on CPUs without a version of
// their own.
#include <cmath>
#include <cstring>

#include "half.h"
#include "matmul_impl.h"
#include "pack.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;
constexpr int TOKENS = 8;  // that share the reading of a block

void quantize_block(const float* x, int8_t* q, float* d, float* sum16) {
  uint32_t top = 0;  // NUMERICS: the largest |x| by its bits, so that a NaN is the largest and shows in d
  for (int i = 0; i < BLOCK_COLS; ++i) {
    const uint32_t bits = f32_to_bits(x[i]) & 0x7fffffffu;
    if (bits > top) top = bits;
  }
  const float amax = f32_from_bits(top);
  const bool plain = amax >= 1e-30f && top < 0x7f800000u;
  const float inverse = plain ? 127.0f / amax : 0.0f;
  *d = amax < 1e-30f ? 0.0f : amax / 127.0f;
  sum16[0] = sum16[1] = 0.0f;
  for (int i = 0; i < BLOCK_COLS; ++i) {
    q[i] = plain ? (int8_t)std::nearbyintf(x[i] * inverse) : (int8_t)0;
    sum16[i / 16] += (float)q[i];
  }
}

void quantize_rows(const float* x, int64_t ldx, const ActQ8* dst, int64_t t0, int64_t t1) {
  for (int64_t t = t0; t < t1; ++t)
    for (int64_t b = 0; b < dst->n_blocks; ++b) {
      const int64_t col = b * BLOCK_COLS;
      float values[BLOCK_COLS] = {};
      const int64_t n = dst->n_cols - col < BLOCK_COLS ? dst->n_cols - col : BLOCK_COLS;
      std::memcpy(values, x + t * ldx + col, (size_t)n * sizeof(float));
      for (int64_t row = t * dst->n_terms; row < (t + 1) * dst->n_terms; ++row) {
        const int64_t at = row * dst->n_blocks + b;
        int8_t* q = dst->q + row * dst->ld_q + col;
        float* sum16 = dst->sum16 + 2 * at;
        quantize_block(values, q, dst->d + at, sum16);
        dst->sum[at] = sum16[0] + sum16[1];
        dst->s[at] = dst->d[at] * dst->sum[at];
        for (int half = 0; half < 2; ++half) dst->s16[2 * at + half] = dst->d[at] * sum16[half];
        for (int i = 0; i < BLOCK_COLS; ++i) values[i] = std::fma(-dst->d[at], (float)q[i], values[i]);
      }
    }
}

// acc[row] += one block's share, in the order that every version keeps: products by half or block, then the minima.
void add_block(const PanelLayout& layout, const PanelBlock& w, const ActQ8* act, int64_t act_row, int64_t b, float* acc) {
  const int n_subs = BLOCK_COLS / scale_cols(layout.scale), n_quads = QUADS / n_subs;
  const int8_t* q = act->q + act_row * act->ld_q + b * BLOCK_COLS;
  const int64_t at = act_row * act->n_blocks + b;
  for (int sub = 0; sub < n_subs; ++sub) {
    const auto sum = (int32_t)(n_subs == 1 ? act->sum[at] : act->sum16[2 * at + sub]);
    int32_t dot[N];
    for (int row = 0; row < N; ++row) dot[row] = -layout.zero * sum;
    for (int quad = sub * n_quads; quad < (sub + 1) * n_quads; ++quad)
      for (int row = 0; row < N; ++row)
        for (int i = 0; i < 4; ++i) dot[row] += w.q[quad * QUAD_BYTES + 4 * row + i] * q[4 * quad + i];
    for (int row = 0; row < N; ++row) acc[row] += (float)dot[row] * w.d[sub][row] * act->d[at];
  }
  if (!has_min(layout.scale)) return;
  for (int sub = 0; sub < n_subs; ++sub) {
    const float s = n_subs == 1 ? act->s[at] : act->s16[2 * at + sub];
    for (int row = 0; row < N; ++row) acc[row] += w.m[sub][row] * s;
  }
}

int64_t rows_of_panel(const PackedMatrix* m, int64_t panel) {
  const int64_t left = m->n_rows - panel * N;
  return left < N ? left : N;
}

void mul_q8(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
            int64_t ld_out, void*) {
  const PanelLayout& layout = panel_layout(m->type);
  for (int64_t panel = panel0; panel < panel1; ++panel)
    for (int64_t t = t0; t < t1; t += TOKENS) {
      const int64_t n = t1 - t < TOKENS ? t1 - t : TOKENS;
      float acc[TOKENS][N] = {};
      PanelBlock block;
      for (int64_t b = 0; b < act->n_blocks; ++b) {
        read_panel_block(m, panel, b, &block);
        for (int64_t i = 0; i < n * act->n_terms; ++i)
          add_block(layout, block, act, t * act->n_terms + i, b, acc[i / act->n_terms]);
      }
      const size_t bytes = (size_t)rows_of_panel(m, panel) * sizeof(float);
      for (int64_t i = 0; i < n; ++i) std::memcpy(out + (t + i) * ld_out + panel * N, acc[i], bytes);
    }
}

// NUMERICS: sums of STRIP_COLS columns are added up, which keeps the error of long rows down.
void mul_f32(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
             float* out, int64_t ld_out, void* scratch) {
  float* weights = static_cast<float*>(scratch);
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const int64_t n_rows = rows_of_panel(m, panel);
    for (int64_t col = 0; col < m->n_cols; col += STRIP_COLS) {
      const int64_t n = m->n_cols - col < STRIP_COLS ? m->n_cols - col : STRIP_COLS;
      read_panel_floats(m, panel, col, col + n, weights);
      for (int64_t t = t0; t < t1; ++t) {
        float acc[N] = {};
        for (int64_t k = 0; k < n; ++k)
          for (int row = 0; row < N; ++row) acc[row] += weights[k * N + row] * x[t * ldx + col + k];
        float* to = out + t * ld_out + panel * N;
        for (int64_t row = 0; row < n_rows; ++row) to[row] = col == 0 ? acc[row] : to[row] + acc[row];
      }
    }
  }
}

}  // namespace

const MatmulKernels MATMUL_SCALAR = {quantize_rows, mul_q8, mul_f32};

}  // namespace cext
