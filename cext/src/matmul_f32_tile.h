// Products of float weights with f32 activations, for any vector width: include after a simd_*.h.
//
// An output is one chain of FMAs over the columns of a strip, in order, and the strips' sums added up in order: the same for any
// number of tokens. A tile keeps NT tokens of R panels in registers; weights of 16 bits are widened as they are loaded.
#pragma once
#include "matmul_impl.h"
#include "pack.h"
#include "quant_types.h"

namespace cext {
namespace {

constexpr int PANEL_VF = PANEL_ROWS_N / VF_W;  // vectors that hold one column of a panel

template <int TYPE>
inline VF load_weights(const uint8_t* p) {
  if constexpr (TYPE == TYPE_F16) return vf_load_f16(reinterpret_cast<const uint16_t*>(p));
  else if constexpr (TYPE == TYPE_BF16) return vf_load_bf16(reinterpret_cast<const uint16_t*>(p));
  else return vf_load(reinterpret_cast<const float*>(p));
}

struct FloatTile {
  const uint8_t* weights;  // of the strip's first column and the first panel
  int64_t panel_bytes;     // from one panel to the next
  int64_t n_cols;          // of the strip
  int64_t n_rows;          // of the panels, that are written
  bool is_first;           // strip of the row: what `out` holds does not count
};

template <int TYPE, int NT, int R>
void mul_float_tile(const FloatTile& tile, const float* x, int64_t ldx, float* out, int64_t ld_out) {
  constexpr int V = R * PANEL_VF, weight_bytes = VF_W * (TYPE == TYPE_F32 ? 4 : 2);
  VF acc[NT][V];
#pragma GCC unroll 16
  for (int t = 0; t < NT; ++t)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) acc[t][v] = vf_zero();
  const uint8_t* w = tile.weights;
  for (int64_t k = 0; k < tile.n_cols; ++k, w += PANEL_VF * weight_bytes) {
    VF weights[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v)
      weights[v] = load_weights<TYPE>(w + v / PANEL_VF * tile.panel_bytes + v % PANEL_VF * weight_bytes);
#pragma GCC unroll 16
    for (int t = 0; t < NT; ++t) {
      const VF a = vf_set1(x[t * ldx + k]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) acc[t][v] = vf_fma(weights[v], a, acc[t][v]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < NT; ++t)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const int64_t left = tile.n_rows - v * VF_W;
      float* to = out + t * ld_out + v * VF_W;
      if (left >= VF_W) vf_store(to, tile.is_first ? acc[t][v] : vf_add(vf_load(to), acc[t][v]));
      else if (left > 0) vf_store_n(to, tile.is_first ? acc[t][v] : vf_add(vf_load_n(to, left), acc[t][v]), left);
    }
}

// Tiles of R panels for all tokens, the widest first.
template <int TYPE, int R>
void mul_float_tokens(const FloatTile& tile, const float* x, int64_t ldx, int64_t n_tokens, float* out, int64_t ld_out) {
  constexpr int wide = R > 2 ? 1 : VF_REGS == 32 ? 12 / R * 2 : 6 / R;
  int64_t t = 0;
  for (; t + wide <= n_tokens; t += wide)
    mul_float_tile<TYPE, wide, R>(tile, x + t * ldx, ldx, out + t * ld_out, ld_out);
  if constexpr (wide > 4)
    for (; t + 4 <= n_tokens; t += 4) mul_float_tile<TYPE, 4, R>(tile, x + t * ldx, ldx, out + t * ld_out, ld_out);
  if constexpr (wide > 2)
    for (; t + 2 <= n_tokens; t += 2) mul_float_tile<TYPE, 2, R>(tile, x + t * ldx, ldx, out + t * ld_out, ld_out);
  for (; t < n_tokens; ++t) mul_float_tile<TYPE, 1, R>(tile, x + t * ldx, ldx, out + t * ld_out, ld_out);
}

template <int TYPE>
void mul_float_panels(const FloatTile& tile, int64_t n_panels, const float* x, int64_t ldx, int64_t n_tokens, float* out,
                      int64_t ld_out) {
  if (n_panels == 4) mul_float_tokens<TYPE, 4>(tile, x, ldx, n_tokens, out, ld_out);
  else if (n_panels == 2) mul_float_tokens<TYPE, 2>(tile, x, ldx, n_tokens, out, ld_out);
  else mul_float_tokens<TYPE, 1>(tile, x, ldx, n_tokens, out, ld_out);
}

// Panels that a tile takes of those left: four for one token, whose chains would wait for each other.
inline int64_t tile_panels(int64_t n_left, int64_t n_tokens) {
  if (n_tokens == 1 && n_left >= 4) return 4;
  return n_left >= STRIP_PANELS && VF_REGS == 32 ? STRIP_PANELS : 1;
}

void mul_f32(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
             float* out, int64_t ld_out, void* scratch) {
  const bool is_float = panel_layout(m->type).kind == PANEL_FLOAT;
  const int64_t size = m->type == TYPE_F32 ? 4 : 2, n_tokens = t1 - t0;
  const float* from = x + t0 * ldx;
  if (n_tokens <= 0) return;
  for (int64_t panel = panel0, n = 0; panel < panel1; panel += n) {
    n = is_float ? tile_panels(panel1 - panel, n_tokens) : 1;
    FloatTile tile;
    tile.n_rows = m->n_rows - panel * PANEL_ROWS_N;
    float* to = out + t0 * ld_out + panel * PANEL_ROWS_N;
    for (int64_t col = 0; col < m->n_cols; col += STRIP_COLS) {
      tile.n_cols = m->n_cols - col < STRIP_COLS ? m->n_cols - col : STRIP_COLS;
      tile.is_first = col == 0;
      tile.panel_bytes = m->panel_bytes;
      tile.weights = m->data + panel * m->panel_bytes + col * PANEL_ROWS_N * size;
      if (!is_float) {
        read_panel_floats(m, panel, col, col + tile.n_cols, static_cast<float*>(scratch));
        tile.weights = static_cast<const uint8_t*>(scratch);
      }
      if (m->type == TYPE_F16) mul_float_panels<TYPE_F16>(tile, n, from + col, ldx, n_tokens, to, ld_out);
      else if (m->type == TYPE_BF16) mul_float_panels<TYPE_BF16>(tile, n, from + col, ldx, n_tokens, to, ld_out);
      else mul_float_panels<TYPE_F32>(tile, n, from + col, ldx, n_tokens, to, ld_out);
    }
  }
}

}  // namespace
}  // namespace cext
