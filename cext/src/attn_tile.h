// Attention of a tile of query rows against a chunk: two small matrix products with the softmax between.
// Query rows lie across vector lanes: scores are kept as panels [slot][VF_W rows], so that maxima, sums and masks need
// no horizontal step, K rows are broadcast from where they lie, and V rows are the vectors of the second product.
#pragma once
#include "attn_rows.h"

namespace cext {
namespace {

constexpr int kScoreVectors = VF_REGS == 32 ? 6 : 3;  // row vectors of the first product
constexpr int kValueVectors = VF_REGS == 32 ? 4 : 2;  // value vectors of the second

// Per-row state, arrays of n_rows padded, at `rows_lo` in the scratch.
struct TileRows {
  int32_t *lo, *hi;              // positions seen
  float *pos, *slope;
  float *m, *l;                  // of all chunks so far
  float *chunk_m, *chunk_l;
};

inline TileRows tile_rows(const Work& w) {
  float* base = w.scratch + w.at.rows_lo;
  const int64_t n = w.at.n_rows;
  return {reinterpret_cast<int32_t*>(base), reinterpret_cast<int32_t*>(base + n), base + 2 * n, base + 3 * n,
          base + 4 * n, base + 5 * n, base + 6 * n, base + 7 * n};
}

inline void init_rows(const Work& w, const TileRows& rows) {
  for (int64_t r = 0; r < w.at.n_rows; ++r) {
    const bool is_real = r < w.n_rows;
    const int32_t pos = is_real ? w.call->pos[w.tile->t0 + r / w.n_group] : 0;
    const AttnRange seen = is_real ? attn_range(w.p, pos) : AttnRange{1, 0};
    rows.lo[r] = seen.lo;
    rows.hi[r] = seen.hi;
    rows.pos[r] = (float)pos;
    rows.slope[r] = is_real ? kLog2E * attn_slope(w.p, (int32_t)(w.i_head_kv * w.n_group + r % w.n_group)) : 0.0f;
  }
}

// The row of slots without a cell and of lanes without a query.
inline float* zero_row(const Work& w) {
  const int64_t ld = w.d_kp > w.d_vp ? w.d_kp : w.d_vp;
  return w.scratch + w.at.tile + ATTN_SUBTILE * ld;
}

// Queries for cells with this delta, [d_k][n_rows], scaled; lanes past the last row are zero.
inline void load_queries(const Work& w, int32_t delta) {
  float* q = w.scratch + w.at.q;
  float* buffer = w.scratch + w.at.tile;
  const int64_t ld = w.at.n_rows, d = w.p->d_k;
  const VF s = vf_set1(query_scale(w.p));
  for (int64_t r0 = 0; r0 < w.n_rows; r0 += VF_W) {
    const float* rows[VF_W];
    for (int64_t i = 0; i < VF_W; ++i)
      rows[i] = r0 + i < w.n_rows ? query_row(w, r0 + i, delta, buffer + i * w.d_kp) : zero_row(w);
    for (int64_t k = 0; k < d; k += VF_W) {
      const int64_t n = d - k < VF_W ? d - k : (int64_t)VF_W;
      VF block[VF_W];
      for (int i = 0; i < VF_W; ++i)
        block[i] = vf_mul(n == VF_W ? vf_load(rows[i] + k) : vf_load_n(rows[i] + k, n), s);
      vf_transpose(block);
      for (int64_t j = 0; j < n; ++j) vf_store(q + (k + j) * ld + r0, block[j]);
    }
  }
}

// scores[j][m] (+)= sum over k of K[m][k] * q[k][row vector j], for CELLS cells and N row vectors.
template <int CELLS, int N>
inline void score_block(const float* q, int64_t ld, int64_t d, const float* const* k_rows, float* scores,
                        bool is_added) {
  VF acc[CELLS][N];
  for (int m = 0; m < CELLS; ++m)
    for (int j = 0; j < N; ++j) acc[m][j] = vf_zero();
  for (int64_t k = 0; k < d; ++k) {
    VF qs[N];
    for (int j = 0; j < N; ++j) qs[j] = vf_load(q + k * ld + j * VF_W);
    for (int m = 0; m < CELLS; ++m) {
      const VF b = vf_set1(k_rows[m][k]);
      for (int j = 0; j < N; ++j) acc[m][j] = vf_fma(b, qs[j], acc[m][j]);
    }
  }
  for (int m = 0; m < CELLS; ++m)
    for (int j = 0; j < N; ++j) {
      float* s = scores + (int64_t)j * ATTN_CHUNK * VF_W + m * VF_W;
      vf_store(s, is_added ? vf_add(vf_load(s), acc[m][j]) : acc[m][j]);
    }
}

// A compile-time count of vectors, as a value.
template <int N>
struct Width {
  static constexpr int n = N;
};

// f(first, Width<n>) over groups of at most MAX of n_vectors.
template <int MAX, typename F>
inline void in_groups(int64_t n_vectors, F f) {
  int64_t i = 0;
  for (; n_vectors - i >= MAX; i += MAX) f(i, Width<MAX>{});
  if constexpr (MAX > 1)
    if (i < n_vectors) in_groups<MAX - 1>(n_vectors - i, [&](int64_t j, auto width) { f(i + j, width); });
}

// Scores of n slots (a multiple of 8) for N row vectors.
template <int N>
inline void score_slots(const float* q, int64_t ld, int64_t d, const float* const* k_rows, int64_t n, float* scores,
                        bool is_added) {
  constexpr int kCells = 8 * N + N + 1 <= VF_REGS ? 8 : 4;
  for (int64_t s = 0; s < n; s += kCells)
    score_block<kCells, N>(q, ld, d, k_rows + s, scores + s * VF_W, is_added);
}

// The f32 rows of a subtile's slots: where they lie, or widened into the tile buffer. Slots without a cell and past the
// end get a row of zeros.
struct SubtileRows {
  const float* row[ATTN_SUBTILE];
};

// f(piece, first cell of it, first slot within the subtile, cells) for the cells in slots [s0, s0 + ATTN_SUBTILE).
template <typename F>
inline void each_part(const ChunkCells* cells, int64_t s0, F f) {
  for (int32_t i = 0; i < cells->n_pieces; ++i) {
    const ChunkPiece& piece = cells->pieces[i];
    const auto first_from = [&piece](int64_t slot) {
      return slot > piece.slot ? (slot - piece.slot + piece.slot_step - 1) / piece.slot_step : 0;
    };
    const int64_t a = first_from(s0), end = first_from(s0 + ATTN_SUBTILE), b = end < piece.count ? end : piece.count;
    if (a < b) f(piece, a, piece.slot + a * piece.slot_step - s0, b - a);
  }
}

inline void find_rows(const Work& w, int64_t s0, bool is_k, SubtileRows* out) {
  const int32_t type = is_k ? w.p->type_k : w.p->type_v;
  const int64_t d = is_k ? w.p->d_k : w.p->d_v, ld = is_k ? w.d_kp : w.d_vp, n_bytes = is_k ? w.k_bytes : w.v_bytes;
  // K is read value by value; V by whole vectors, so a ragged row needs its padding.
  const bool is_in_place = type == TYPE_F32 && (is_k || d == ld);
  float* tile = w.scratch + w.at.tile;
  for (int i = 0; i < ATTN_SUBTILE; ++i) out->row[i] = zero_row(w);
  each_part(w.cells, s0, [&](const ChunkPiece& piece, int64_t cell, int64_t slot, int64_t n) {
    const uint8_t* rows = is_k ? k_row(w, piece, cell) : v_row(w, piece, cell);
    if (!is_in_place)
      widen_rows(type, rows, n_bytes, n, d, w.scratch + w.at.scales, tile + slot * ld, ld * piece.slot_step);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t s = slot + i * piece.slot_step;
      out->row[s] = is_in_place ? reinterpret_cast<const float*>(rows + i * n_bytes) : tile + s * ld;
    }
  });
}

// Raw scores of the slots of one subtile into all panels. Cells of another delta than `delta` are left out (their
// queries are turned otherwise); `is_added` for the second delta of a subtile and on.
inline void score_subtile(const Work& w, const SubtileRows& k, int64_t s0, int64_t n_slots, bool is_added) {
  const float* q = w.scratch + w.at.q;
  float* scores = w.scratch + w.at.scores;
  const int64_t n = (n_slots + 7) / 8 * 8, ld = w.at.n_rows;
  in_groups<kScoreVectors>((w.n_rows + VF_W - 1) / VF_W, [&](int64_t v, auto width) {
    score_slots<decltype(width)::n>(q + v * VF_W, ld, w.p->d_k, k.row, n,
                                    scores + (v * ATTN_CHUNK + s0) * VF_W, is_added);
  });
}

inline void score_chunk(const Work& w, int64_t first, int32_t* loaded_delta) {
  const ChunkCells* cells = w.cells;
  for (int64_t s0 = first / ATTN_SUBTILE * ATTN_SUBTILE; s0 < cells->n_slots; s0 += ATTN_SUBTILE) {
    const int64_t n_slots = cells->n_slots - s0 < ATTN_SUBTILE ? cells->n_slots - s0 : (int64_t)ATTN_SUBTILE;
    SubtileRows all;
    int32_t deltas[ATTN_SUBTILE], n_deltas = 0;
    each_part(cells, s0, [&](const ChunkPiece& piece, int64_t, int64_t, int64_t) {
      int32_t i = 0;
      while (i < n_deltas && deltas[i] != piece.delta) ++i;
      if (i == n_deltas) deltas[n_deltas++] = piece.delta;
    });
    for (int32_t i = 0; i < n_deltas; ++i) {
      if (*loaded_delta != deltas[i]) load_queries(w, deltas[i]);  // uses the tile buffer, hence before find_rows
      *loaded_delta = deltas[i];
      find_rows(w, s0, true, &all);
      if (n_deltas > 1)
        each_part(cells, s0, [&](const ChunkPiece& piece, int64_t, int64_t slot, int64_t n) {
          for (int64_t c = 0; piece.delta != deltas[i] && c < n; ++c) all.row[slot + c * piece.slot_step] = zero_row(w);
        });
      score_subtile(w, all, s0, n_slots, i > 0);
    }
  }
}

// The relative biases of VF_W query rows from row r0 on to a cell.
inline VF rel_biases(const Work& w, const TileRows& rows, int64_t r0, int32_t cell_pos) {
  float bias[VF_W];
  for (int64_t i = 0; i < VF_W; ++i) {
    const int64_t r = r0 + i, i_head = w.i_head_kv * w.n_group + r % w.n_group;
    bias[i] = r < w.n_rows ? attn_rel_bias(w.p, i_head, (int64_t)cell_pos - (int64_t)rows.pos[r]) : 0.0f;
  }
  return vf_load(bias);
}

// Softmax of the panel of row vector v over slots [first, last): scores become exp(score - max).
inline void softmax_panel(const Work& w, const TileRows& rows, int64_t v, int64_t first, int64_t last) {
  const AttnParams* p = w.p;
  const ChunkCells* cells = w.cells;
  const int64_t r0 = v * VF_W;
  float* scores = w.scratch + w.at.scores + v * ATTN_CHUNK * VF_W;
  const VF lowest = vf_set1(kLowest);
  VF top = lowest;
  bool is_whole = first < last && cells->n_cells == cells->n_slots - first && p->softcap == 0.0f &&
                  p->max_alibi_bias <= 0.0f && !p->rel_bias;
  for (int64_t r = r0; is_whole && r < r0 + VF_W && r < w.n_rows; ++r)
    is_whole = rows.lo[r] <= cells->pos[first] && cells->pos[last - 1] <= rows.hi[r];
  if (is_whole) {
    for (int64_t s = first; s < last; ++s) top = vf_max(vf_load(scores + s * VF_W), top);
  } else {
    const VF pos = vf_load(rows.pos + r0), slope = vf_load(rows.slope + r0);
    for (int64_t s = first; s < last; ++s) {
      VF x = vf_load(scores + s * VF_W);
      if (p->softcap != 0.0f) x = cap_score(x, p->softcap);
      if (p->max_alibi_bias > 0.0f) x = vf_fnma(slope, vf_abs(vf_sub(pos, vf_set1((float)cells->pos[s]))), x);
      if (p->rel_bias) x = vf_fma(vf_set1(kLog2E), rel_biases(w, rows, r0, cells->pos[s]), x);
      x = vf_select(vf_within(cells->pos[s], rows.lo + r0, rows.hi + r0), x, lowest);
      vf_store(scores + s * VF_W, x);
      top = vf_max(x, top);
    }
  }
  const VF shift = vf_select(vf_eq(top, lowest), vf_zero(), top);
  VF sum = vf_zero();
  for (int64_t s = first; s < last; ++s) {
    const VF e = vf_exp2(vf_sub(vf_load(scores + s * VF_W), shift));
    vf_store(scores + s * VF_W, e);
    sum = vf_add(sum, e);
  }
  vf_store(rows.chunk_m + r0, top);
  vf_store(rows.chunk_l + r0, sum);
}

// o[4 rows][N vectors] += sum over slots of weight * V; the weights of a slot's 4 rows lie side by side.
template <int N>
inline void value_block(const float* weights, const float* const* v_rows, int64_t n, int64_t d0, float* o, int64_t ld) {
  VF acc[4][N];
  for (int r = 0; r < 4; ++r)
    for (int j = 0; j < N; ++j) acc[r][j] = vf_load(o + r * ld + j * VF_W);
  for (int64_t s = 0; s < n; ++s) {
    VF vs[N];
    for (int j = 0; j < N; ++j) vs[j] = vf_load(v_rows[s] + d0 + j * VF_W);
    for (int r = 0; r < 4; ++r) {
      const VF b = vf_set1(weights[s * VF_W + r]);
      for (int j = 0; j < N; ++j) acc[r][j] = vf_fma(b, vs[j], acc[r][j]);
    }
  }
  for (int r = 0; r < 4; ++r)
    for (int j = 0; j < N; ++j) vf_store(o + r * ld + j * VF_W, acc[r][j]);
}

// Values of one row, cells without weight skipped: 0 * NaN is NaN.
inline void value_row_careful(const float* weights, const SubtileRows& v, int64_t a, int64_t b, int64_t d_vp,
                              float* o) {
  for (int64_t s = a; s < b; ++s) {
    const VF weight = vf_set1(weights[s * VF_W]);
    for (int64_t i = 0; weights[s * VF_W] != 0.0f && i < d_vp; i += VF_W)
      vf_store(o + i, vf_fma(weight, vf_load(v.row[s] + i), vf_load(o + i)));
  }
}

// o += weights * V. last[v]: end of the slots that row vector v can see.
inline void value_chunk(const Work& w, int64_t first, const int32_t* last, bool is_careful, float* o) {
  const ChunkCells* cells = w.cells;
  for (int64_t s0 = first / ATTN_SUBTILE * ATTN_SUBTILE; s0 < cells->n_slots; s0 += ATTN_SUBTILE) {
    SubtileRows v_rows;
    find_rows(w, s0, false, &v_rows);
    const int64_t a = first > s0 ? first - s0 : 0;
    const int64_t end = cells->n_slots - s0 < ATTN_SUBTILE ? cells->n_slots - s0 : (int64_t)ATTN_SUBTILE;
    for (int64_t r = 0; r < w.n_rows; r += 4) {
      const int64_t v = r / VF_W, b = last[v] - s0 < end ? last[v] - s0 : end;
      if (b <= a) continue;
      const float* weights = w.scratch + w.at.scores + (v * ATTN_CHUNK + s0) * VF_W + r % VF_W;
      if (!is_careful)
        in_groups<kValueVectors>(w.d_vp / VF_W, [&](int64_t j, auto width) {
          value_block<decltype(width)::n>(weights + a * VF_W, v_rows.row + a, b - a, j * VF_W,
                                          o + r * w.d_vp + j * VF_W, w.d_vp);
        });
      else
        for (int64_t i = 0; i < 4; ++i) value_row_careful(weights + i, v_rows, a, b, w.d_vp, o + (r + i) * w.d_vp);
    }
  }
}

// The result of one block of cells for all rows: rows.chunk_m, rows.chunk_l and o[n_rows][d_vp].
inline void tile_block(const Work& w, const TileRows& rows, bool is_careful, int32_t* loaded_delta, float* o) {
  const ChunkCells* cells = w.cells;
  const int64_t first = cells->pieces[0].slot;
  int32_t last[ATTN_MAX_ROWS / VF_W];
  score_chunk(w, first, loaded_delta);
  fill(o, 0.0f, w.at.n_rows * w.d_vp);
  for (int64_t v = 0; v * VF_W < w.n_rows; ++v) {
    int32_t hi = INT32_MIN, end = cells->n_slots;
    for (int64_t r = v * VF_W; r < (v + 1) * VF_W && r < w.n_rows; ++r) hi = rows.hi[r] > hi ? rows.hi[r] : hi;
    while (end > first && (cells->pos[end - 1] > hi || cells->pos[end - 1] == ATTN_NO_POS)) --end;
    last[v] = end;
    softmax_panel(w, rows, v, first, end);
  }
  value_chunk(w, first, last, is_careful, o);
}

// One chunk, all its blocks merged: chunk_m, chunk_l, o. False where it holds no cell that the tile may see.
inline bool tile_chunk(const Work& w, const TileRows& rows, AttnRange seen, int32_t chunk, bool is_careful,
                       int32_t* loaded_delta, float* o) {
  float* next_o = o + w.at.n_rows * w.d_vp;
  float m[ATTN_MAX_ROWS], l[ATTN_MAX_ROWS];
  bool has_cells = false;
  ChunkCursor at = attn_chunk_begin(w.runs, w.n_runs, chunk);
  while (!at.is_done) {
    attn_chunk_next(w.runs, w.n_runs, chunk, seen, &at, w.cells);
    if (w.cells->n_cells == 0) continue;
    tile_block(w, rows, is_careful, loaded_delta, has_cells ? next_o : o);
    if (has_cells) merge_rows(m, l, o, rows.chunk_m, rows.chunk_l, next_o, w.n_rows, w.d_vp);
    for (int64_t r = 0; r < w.at.n_rows && !has_cells; ++r) m[r] = rows.chunk_m[r], l[r] = rows.chunk_l[r];
    has_cells = true;
  }
  for (int64_t r = 0; r < w.at.n_rows && has_cells; ++r) rows.chunk_m[r] = m[r], rows.chunk_l[r] = l[r];
  return has_cells;
}

inline bool are_finite(const float* x, int64_t n) {
  VF sum = vf_zero();
  for (int64_t i = 0; i < n; i += VF_W) sum = vf_fma(vf_load(x + i), vf_zero(), sum);
  const float total = vf_hsum(sum);
  return total == total;
}

// Chunks [chunk0, chunk1) of the tile into acc, or into the partial results. False where a result is not finite.
inline bool tile_chunks(const Work& w, const TileRows& rows, int64_t chunk0, int64_t chunk1, bool is_careful,
                        float* acc) {
  float* o = w.scratch + w.at.chunk_o;
  bool is_finite = true;
  AttnRange seen = {INT32_MAX, INT32_MIN};
  for (int64_t r = 0; r < w.n_rows; ++r) {
    if (rows.lo[r] < seen.lo) seen.lo = rows.lo[r];
    if (rows.hi[r] > seen.hi) seen.hi = rows.hi[r];
  }
  fill(acc, 0.0f, w.n_rows * w.d_vp);
  for (int64_t r = 0; r < w.at.n_rows; ++r) {
    rows.m[r] = rows.chunk_m[r] = kLowest;
    rows.l[r] = rows.chunk_l[r] = 0.0f;
  }
  int32_t loaded_delta = 0;
  load_queries(w, 0);
  for (int64_t c = chunk0; c < chunk1; ++c) {
    const bool has_cells = tile_chunk(w, rows, seen, (int32_t)(w.tile->chunk0 + c), is_careful, &loaded_delta, o);
    if (w.tile->part0 < 0) {
      if (has_cells) merge_rows(rows.m, rows.l, acc, rows.chunk_m, rows.chunk_l, o, w.n_rows, w.d_vp);
      continue;
    }
    if (has_cells) is_finite = is_finite && are_finite(o, w.n_rows * w.d_vp);
    for (int64_t r = 0; r < w.n_rows; ++r)
      store_part(w, c, r, has_cells ? rows.chunk_m[r] : kLowest, has_cells ? rows.chunk_l[r] : 0.0f,
                 has_cells ? o + r * w.d_vp : acc);
  }
  return is_finite && are_finite(acc, w.n_rows * w.d_vp);
}

void tile_task(const Work& w, int64_t chunk0, int64_t chunk1) {
  const TileRows rows = tile_rows(w);
  float* acc = w.scratch + w.at.acc;
  init_rows(w, rows);
  fill(zero_row(w), 0.0f, w.d_kp > w.d_vp ? w.d_kp : w.d_vp);
  // Infinities or NaN in a cell must not reach the rows that do not see it: then all again, the slow way.
  if (!tile_chunks(w, rows, chunk0, chunk1, false, acc)) tile_chunks(w, rows, chunk0, chunk1, true, acc);
  for (int64_t r = 0; r < w.n_rows && w.tile->part0 < 0; ++r)
    finish_row(w, r, rows.m[r], rows.l[r], acc + r * w.d_vp);
}

}  // namespace
}  // namespace cext
