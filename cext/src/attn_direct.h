// Attention of one token against a chunk: each K and V row is read once and serves all query heads of its KV head.
#pragma once
#include "attn_rows.h"

namespace cext {
namespace {

// Heads are padded to a power of two, so that the sums of VF_W products (cells x heads) come out side by side.
constexpr int padded_heads(int n) { return n <= 1 ? 1 : n <= 2 ? 2 : n <= 4 ? 4 : 8; }

// acc[cell * padded heads + head] = products of CELLS rows with G queries, lane by lane.
template <typename Read, int G, int CELLS>
CEXT_INLINE void direct_products(const float* q, int64_t ld_q, int64_t d, const CacheRows& rows, VF* acc) {
  VF sums[CELLS][G];
  for (int c = 0; c < CELLS; ++c)
    for (int g = 0; g < G; ++g) sums[c][g] = vf_zero();
  for (int64_t k = 0; k < d; k += VF_W) {
    VF qs[G];
    for (int g = 0; g < G; ++g) qs[g] = vf_load(q + g * ld_q + k);
    for (int c = 0; c < CELLS; ++c) {
      const VF x = Read::at(rows, c, k);
      for (int g = 0; g < G; ++g) sums[c][g] = vf_fma(x, qs[g], sums[c][g]);
    }
  }
  for (int c = 0; c < CELLS; ++c)
    for (int g = 0; g < G; ++g) acc[c * padded_heads(G) + g] = sums[c][g];
}

// Sums for VF_W / padded heads cells.
template <typename Read, int G>
CEXT_INLINE VF direct_sums(const float* q, int64_t ld_q, int64_t d, const CacheRows& rows) {
  constexpr int kHeads = padded_heads(G), kCells = VF_W / kHeads, kStep = kCells < 4 ? kCells : 4;
  VF acc[VF_W];
  for (int i = 0; i < VF_W; ++i) acc[i] = vf_zero();
  for (int c = 0; c < kCells; c += kStep)
    direct_products<Read, G, kStep>(q, ld_q, d, rows.from(c), acc + c * kHeads);
  return vf_sums(acc);
}

// Rows that are read next, fetched one for each row that is computed with: pages are too short for the CPU to notice that it
// goes through them.
struct RowsAhead {
  const uint8_t* at;
  int64_t row_bytes;

  inline void fetch(int64_t n) {
    for (const uint8_t* end = at + n * row_bytes; at < end; at += 64) vf_fetch(at);
  }
};

// scores[slot][padded heads] of n cells.
template <typename Read, int G>
inline void direct_scores(const float* q, int64_t ld_q, int64_t d, CacheRows rows, int64_t n, int64_t slot_step,
                          float* scores, RowsAhead k_ahead, RowsAhead v_ahead) {
  constexpr int kHeads = padded_heads(G), kCells = VF_W / kHeads;
  if (slot_step == 1)
    for (; n >= kCells; n -= kCells, rows = rows.from(kCells), scores += VF_W) {
      k_ahead.fetch(kCells);
      v_ahead.fetch(kCells);
      vf_store(scores, direct_sums<Read, G>(q, ld_q, d, rows));
    }
  for (; n > 0; --n, rows = rows.from(1), scores += slot_step * kHeads) {
    const CacheRows same = {rows.bytes, 0, rows.scales, 0};  // this row in all places: nothing is read past the last
    vf_store_n(scores, direct_sums<Read, G>(q, ld_q, d, same), kHeads);
  }
}

// o[G][d_vp] += sum over n cells of weights[slot][padded heads] * V, N value vectors from d0 on.
template <typename Read, int G, int N>
CEXT_INLINE void direct_values_block(const float* weights, CacheRows rows, int64_t n, int64_t slot_step, int64_t d0,
                                     float* o, int64_t ld) {
  constexpr int kHeads = padded_heads(G);
  VF acc[G][N];
  for (int g = 0; g < G; ++g)
    for (int j = 0; j < N; ++j) acc[g][j] = vf_load(o + g * ld + d0 + j * VF_W);
  for (; n > 0; --n, rows = rows.from(1), weights += slot_step * kHeads) {
    for (int j = 0; j < N; ++j) {
      const VF v = Read::at(rows, 0, d0 + j * VF_W);
      for (int g = 0; g < G; ++g) acc[g][j] = vf_fma(vf_set1(weights[g]), v, acc[g][j]);
    }
  }
  for (int g = 0; g < G; ++g)
    for (int j = 0; j < N; ++j) vf_store(o + g * ld + d0 + j * VF_W, acc[g][j]);
}

template <typename Read, int G>
inline void direct_values(const float* weights, const CacheRows& rows, int64_t n, int64_t slot_step, int64_t d,
                          float* o, int64_t ld) {
  constexpr int kWide = VF_REGS == 32 ? (G <= 2 ? 8 : G <= 4 ? 4 : 2) : (G == 1 ? 8 : G == 2 ? 4 : G <= 4 ? 2 : 1);
  int64_t d0 = 0;
  for (; d0 + kWide * VF_W <= d; d0 += kWide * VF_W)
    direct_values_block<Read, G, kWide>(weights, rows, n, slot_step, d0, o, ld);
  for (; d0 < d; d0 += VF_W) direct_values_block<Read, G, 1>(weights, rows, n, slot_step, d0, o, ld);
}

// f(reader, rows, first cell, n) for all cells of a piece: where they lie if the type has a reader, else widened.
template <typename F>
inline void each_readable(const Work& w, const ChunkPiece& piece, bool is_k, F f) {
  const int32_t type = is_k ? w.p->type_k : w.p->type_v;
  const int64_t d = is_k ? w.p->d_k : w.p->d_v, ld = is_k ? w.d_kp : w.d_vp, n_bytes = is_k ? w.k_bytes : w.v_bytes;
  if (has_reader(type, d)) {
    const uint8_t* bytes = is_k ? k_row(w, piece, 0) : v_row(w, piece, 0);
    const CacheRows rows = cache_rows(type, bytes, n_bytes, piece.count, d, w.scratch + w.at.scales);
    with_reader(type, [&](auto read) { f(read, rows, (int64_t)0, (int64_t)piece.count); });
    return;
  }
  float* tile = w.scratch + w.at.tile;
  for (int64_t i = 0; i < piece.count; i += ATTN_SUBTILE) {
    const int64_t n = piece.count - i < ATTN_SUBTILE ? piece.count - i : (int64_t)ATTN_SUBTILE;
    widen_rows(type, is_k ? k_row(w, piece, i) : v_row(w, piece, i), n_bytes, n, d, nullptr, tile, ld);
    f(ReadF32{}, CacheRows{reinterpret_cast<const uint8_t*>(tile), ld * (int64_t)sizeof(float), nullptr, 0}, i, n);
  }
}

struct HeadSums {
  float m[ATTN_DIRECT_HEADS], l[ATTN_DIRECT_HEADS];
};

// Scores to weights, in place: scores[n_slots][padded heads]; slots without a cell hold -inf and come out 0.
template <int G>
inline void direct_softmax(const Work& w, int32_t pos, float* scores, HeadSums* out) {
  constexpr int kHeads = padded_heads(G);
  const AttnParams* p = w.p;
  const int64_t n_floats = (int64_t)w.cells->n_slots * kHeads, n = (n_floats + VF_W - 1) / VF_W * VF_W;
  for (int64_t i = n_floats; i < n; ++i) scores[i] = kLowest;
  if (p->softcap != 0.0f)
    for (int64_t i = 0; i < n; i += VF_W) {
      const VF x = vf_load(scores + i);
      vf_store(scores + i, vf_select(vf_eq(x, vf_set1(kLowest)), x, cap_score(x, p->softcap)));
    }
  if (p->max_alibi_bias > 0.0f)
    for (int g = 0; g < G; ++g) {
      const float slope = kLog2E * attn_slope(p, (int32_t)(w.i_head_kv * w.n_group + g));
      for (int32_t s = 0; s < w.cells->n_slots; ++s)
        scores[s * kHeads + g] -= slope * __builtin_fabsf((float)pos - (float)w.cells->pos[s]);
    }
  for (int g = 0; p->rel_bias && g < G; ++g)
    for (int32_t s = 0; s < w.cells->n_slots; ++s)
      scores[s * kHeads + g] +=
          kLog2E * attn_rel_bias(p, w.i_head_kv * w.n_group + g, (int64_t)w.cells->pos[s] - pos);
  VF top = vf_set1(kLowest);
  for (int64_t i = 0; i < n; i += VF_W) top = vf_max(vf_load(scores + i), top);
  float lanes[VF_W], shifts[VF_W];
  vf_store(lanes, top);
  for (int g = 0; g < kHeads; ++g) {
    float m = kLowest;
    for (int i = g; i < VF_W; i += kHeads) m = lanes[i] > m ? lanes[i] : m;
    if (g < G) out->m[g] = m;
    for (int i = g; i < VF_W; i += kHeads) shifts[i] = m == kLowest ? 0.0f : m;
  }
  const VF shift = vf_load(shifts);
  VF sum = vf_zero();
  for (int64_t i = 0; i < n; i += VF_W) {
    const VF e = vf_exp2(vf_sub(vf_load(scores + i), shift));
    vf_store(scores + i, e);
    sum = vf_add(sum, e);
  }
  vf_store(lanes, sum);
  for (int g = 0; g < G; ++g) {
    out->l[g] = 0.0f;
    for (int i = g; i < VF_W; i += kHeads) out->l[g] += lanes[i];
  }
}

// The group's queries for cells with this delta: [n_group][d_kp], scaled, padded with zeros.
inline void load_group(const Work& w, int32_t delta) {
  float* q = w.scratch + w.at.q;
  float* buffer = w.scratch + w.at.tile;
  const VF s = vf_set1(query_scale(w.p));
  const int64_t d = w.p->d_k;
  for (int64_t g = 0; g < w.n_group; ++g, q += w.d_kp) {
    const float* row = query_row(w, g, delta, buffer);
    int64_t i = 0;
    for (; i + VF_W <= d; i += VF_W) vf_store(q + i, vf_mul(vf_load(row + i), s));
    for (; i < w.d_kp; i += VF_W) vf_store(q + i, vf_mul(vf_load_n(row + i, d > i ? d - i : 0), s));
  }
}

// One block of cells: out and o[G][d_vp]. behind: where the cells behind it are, for fetching ahead.
template <int G>
inline void direct_block(const Work& w, int32_t pos, const ChunkPiece& behind, int32_t* loaded_delta, HeadSums* out,
                         float* o) {
  constexpr int kHeads = padded_heads(G);
  const ChunkCells* cells = w.cells;
  float* q = w.scratch + w.at.q;
  float* scores = w.scratch + w.at.scores;
  if (cells->n_cells != cells->n_slots) fill(scores, kLowest, (int64_t)cells->n_slots * kHeads);
  for (int32_t i = 0; i < cells->n_pieces; ++i) {
    const ChunkPiece& piece = cells->pieces[i];
    if (piece.delta != *loaded_delta) load_group(w, piece.delta);
    *loaded_delta = piece.delta;
    each_readable(w, piece, true, [&](auto read, const CacheRows& rows, int64_t c, int64_t n) {
      const int64_t d = has_reader(w.p->type_k, w.p->d_k) ? w.p->d_k : w.d_kp;
      const ChunkPiece& next = i + 1 < cells->n_pieces ? cells->pieces[i + 1] : behind;
      direct_scores<decltype(read), G>(q, w.d_kp, d, rows, n, piece.slot_step,
                                       scores + (piece.slot + c * piece.slot_step) * kHeads,
                                       {k_row(w, next, c), w.k_bytes}, {v_row(w, piece, c), w.v_bytes});
    });
  }
  direct_softmax<G>(w, pos, scores, out);
  fill(o, 0.0f, G * w.d_vp);
  for (int32_t i = 0; i < cells->n_pieces; ++i) {
    const ChunkPiece& piece = cells->pieces[i];
    each_readable(w, piece, false, [&](auto read, const CacheRows& rows, int64_t c, int64_t n) {
      const int64_t d = has_reader(w.p->type_v, w.p->d_v) ? w.p->d_v : w.d_vp;
      const float* weights = scores + (piece.slot + c * piece.slot_step) * kHeads;
      direct_values<decltype(read), G>(weights, rows, n, piece.slot_step, d, o, w.d_vp);
    });
  }
}

// Take one block's or chunk's result into another.
inline void merge_heads(int64_t n_group, int64_t d_vp, const HeadSums& from, const float* o, HeadSums* into,
                        float* acc) {
  for (int64_t g = 0; g < n_group; ++g) {
    VF m = vf_set1(into->m[g]), l = vf_set1(into->l[g]), a, b;
    merge_weights(&m, &l, vf_set1(from.m[g]), vf_set1(from.l[g]), &a, &b);
    into->m[g] = vf_first_lane(m);
    into->l[g] = vf_first_lane(l);
    merge_values(acc + g * d_vp, o + g * d_vp, a, b, d_vp);
  }
}

template <int G>
inline void direct_task_of(const Work& w, int64_t chunk0, int64_t chunk1) {
  float* o = w.scratch + w.at.chunk_o;
  float* next_o = o + w.at.n_rows * w.d_vp;
  float* acc = w.scratch + w.at.acc;
  const int32_t pos = w.call->pos[w.tile->t0];
  const AttnRange seen = attn_range(w.p, pos);
  HeadSums all, chunk, block;
  for (int g = 0; g < G; ++g) all.m[g] = kLowest, all.l[g] = 0.0f;
  fill(acc, 0.0f, G * w.d_vp);
  load_group(w, 0);
  int32_t loaded_delta = 0;
  for (int64_t c = chunk0; c < chunk1; ++c) {
    const int32_t number = (int32_t)(w.tile->chunk0 + c);
    bool has_cells = false;
    for (ChunkCursor at = attn_chunk_begin(w.runs, w.n_runs, number); !at.is_done;) {
      attn_chunk_next(w.runs, w.n_runs, number, seen, &at, w.cells);
      if (w.cells->n_cells == 0) continue;
      const KVRun& run = w.runs[at.run < w.n_runs ? at.run : w.n_runs - 1];
      direct_block<G>(w, pos, {run.page, run.first, run.count, 0, 0, 0}, &loaded_delta, has_cells ? &block : &chunk, has_cells ? next_o : o);
      if (has_cells) merge_heads(G, w.d_vp, block, next_o, &chunk, o);
      has_cells = true;
    }
    if (w.tile->part0 < 0) {
      if (has_cells) merge_heads(G, w.d_vp, chunk, o, &all, acc);
      continue;
    }
    for (int g = 0; g < G; ++g)
      store_part(w, c, g, has_cells ? chunk.m[g] : kLowest, has_cells ? chunk.l[g] : 0.0f,
                 has_cells ? o + g * w.d_vp : acc);
  }
  for (int g = 0; g < G && w.tile->part0 < 0; ++g) finish_row(w, g, all.m[g], all.l[g], acc + g * w.d_vp);
}

void direct_task(const Work& w, int64_t chunk0, int64_t chunk1) {
  switch (w.n_group) {
    case 1: return direct_task_of<1>(w, chunk0, chunk1);
    case 2: return direct_task_of<2>(w, chunk0, chunk1);
    case 3: return direct_task_of<3>(w, chunk0, chunk1);
    case 4: return direct_task_of<4>(w, chunk0, chunk1);
    case 5: return direct_task_of<5>(w, chunk0, chunk1);
    case 6: return direct_task_of<6>(w, chunk0, chunk1);
    case 7: return direct_task_of<7>(w, chunk0, chunk1);
    case 8: return direct_task_of<8>(w, chunk0, chunk1);
    default: return;
  }
}

}  // namespace
}  // namespace cext
