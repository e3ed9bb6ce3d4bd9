// Parts that both attention kernels use, over the vectors of simd_<isa>.h: readers of cache rows, rotation of queries,
// and the merge of partial results.
#pragma once
#include "attn_plan.h"
#include "kv_types.h"
#include "quant_types.h"
#include "rotate.h"
#include "simd_math.h"

namespace cext {
namespace {

constexpr float kLowest = -__builtin_inff();
// Scores, maxima and sinks are kept in powers of two, 2^(score * log2 e) = exp(score): the cheaper exponential.
constexpr float kLog2E = 1.44269504088896341f;

// What queries are multiplied with. The cap needs its tanh of the score itself, so there the factor comes after it.
inline float query_scale(const AttnParams* p) { return p->softcap != 0.0f ? p->scale : p->scale * kLog2E; }
// score -> cap * tanh(score / cap), in powers of two
inline VF cap_score(VF x, float cap) {
  return vf_mul(vf_set1(cap * kLog2E), vf_tanh(vf_mul(x, vf_set1(1.0f / cap))));
}

// Rows of one head in the cache, and for q8_0 the scales of their blocks, widened.
struct CacheRows {
  const uint8_t* bytes;
  int64_t row_bytes;
  const float* scales;  // [rows][n_scales]
  int64_t n_scales;

  CacheRows from(int64_t row) const {
    return {bytes + row * row_bytes, row_bytes, scales + row * n_scales, n_scales};
  }
};

// Readers: VF_W values at value i of a row. Only whole vectors, so rows of a multiple of VF_W values.
struct ReadF32 {
  static inline VF at(const CacheRows& rows, int64_t row, int64_t i) {
    return vf_load(reinterpret_cast<const float*>(rows.bytes + row * rows.row_bytes) + i);
  }
};
struct ReadF16 {
  static inline VF at(const CacheRows& rows, int64_t row, int64_t i) {
    return vf_load_f16(reinterpret_cast<const uint16_t*>(rows.bytes + row * rows.row_bytes) + i);
  }
};
struct ReadBF16 {
  static inline VF at(const CacheRows& rows, int64_t row, int64_t i) {
    return vf_load_bf16(reinterpret_cast<const uint16_t*>(rows.bytes + row * rows.row_bytes) + i);
  }
};
struct ReadQ8 {
  static inline VF at(const CacheRows& rows, int64_t row, int64_t i) {
    const uint8_t* q = rows.bytes + row * rows.row_bytes + i / 32 * 34 + 2 + i % 32;
    return vf_mul(vf_load_i8(reinterpret_cast<const int8_t*>(q)), vf_set1(rows.scales[row * rows.n_scales + i / 32]));
  }
};

// Types that the one-token kernel reads where they lie.
inline bool has_reader(int32_t type, int64_t d) {
  return d % VF_W == 0 && (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || type == TYPE_Q8_0);
}

template <typename F>
inline void with_reader(int32_t type, F f) {
  switch (type) {
    case TYPE_F16: return f(ReadF16{});
    case TYPE_BF16: return f(ReadBF16{});
    case TYPE_Q8_0: return f(ReadQ8{});
    default: return f(ReadF32{});
  }
}

// Rows of n cells for the readers; the scales of q8_0 go to `scales`, [n][d / 32].
inline CacheRows cache_rows(int32_t type, const uint8_t* bytes, int64_t row_bytes, int64_t n, int64_t d,
                            float* scales) {
  if (type != TYPE_Q8_0) return {bytes, row_bytes, nullptr, 0};
  for (int64_t r = 0; r < n; ++r)
    for (int64_t b = 0; b < d / 32; ++b) scales[r * (d / 32) + b] = vf_half(bytes + r * row_bytes + b * 34);
  return {bytes, row_bytes, scales, d / 32};
}

// A block of 32 in whole numbers: value = d * q + m.
struct WholeBlock {
  float d, m;
  int8_t q[32];
};

// Source: the layouts of blocks.h.
inline void read_block(int32_t type, const uint8_t* block, WholeBlock* out) {
  constexpr int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const bool has_min = type == TYPE_Q4_1 || type == TYPE_Q5_1, has_fifth = type == TYPE_Q5_0 || type == TYPE_Q5_1;
  const uint8_t* qh = block + (has_min ? 4 : 2);
  split_nibbles(qh + (has_fifth ? 4 : 0), out->q);
  if (has_fifth) add_fifth_bits(qh, out->q);
  out->d = vf_half(block);
  out->m = has_min ? vf_half(block + 2) : 0.0f;
  if (type == TYPE_Q4_0) out->m = -8.0f * out->d;
  if (type == TYPE_Q5_0) out->m = -16.0f * out->d;
  if (type == TYPE_IQ4_NL) look_up(kIq4, out->q);
}

inline void widen_blocks(int32_t type, const uint8_t* row, int64_t d, float* out) {
  const int64_t n = d / 32, block_bytes = kv_row_bytes(type, 32);
  for (int64_t b = 0; b < n; ++b) {
    WholeBlock block;
    read_block(type, row + b * block_bytes, &block);
    const VF scale = vf_set1(block.d), min = vf_set1(block.m);
    for (int j = 0; j < 32; j += VF_W) vf_store(out + b * 32 + j, vf_fma(vf_load_i8(block.q + j), scale, min));
  }
}

// n rows of d values, row_bytes apart, to f32 rows of ld floats; values d .. ld - 1 are zero.
inline void widen_rows(int32_t type, const uint8_t* rows, int64_t row_bytes, int64_t n, int64_t d, float* scales,
                       float* out, int64_t ld) {
  if (has_reader(type, d)) {
    const CacheRows from = cache_rows(type, rows, row_bytes, n, d, scales);
    with_reader(type, [=](auto read) {
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t i = 0; i < d; i += VF_W) vf_store(out + r * ld + i, read.at(from, r, i));
        for (int64_t i = d; i < ld; ++i) out[r * ld + i] = 0.0f;
      }
    });
    return;
  }
  const bool is_plain = type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16;
  for (int64_t r = 0; r < n; ++r) {
    if (is_plain)
      kv_decode_row(type, rows + r * row_bytes, d, out + r * ld);
    else
      widen_blocks(type, rows + r * row_bytes, d, out + r * ld);
    for (int64_t i = d; i < ld; ++i) out[r * ld + i] = 0.0f;
  }
}

// What a task needs to know, and its scratch.
struct Work {
  const AttnCall* call;
  const AttnParams* p;
  const AttnPlan* plan;
  const AttnTile* tile;
  const KVRun* runs;
  int64_t n_runs;
  int64_t i_head_kv, n_group;
  int64_t n_rows;  // query rows: n_tokens * n_group, row = token * n_group + head of the group
  int64_t k_bytes, v_bytes;  // of a row in the cache
  int64_t d_kp, d_vp;        // padded
  AttnScratch at;
  float* scratch;
  ChunkCells* cells;
};

inline Work begin_work(const AttnCall* call, const AttnTile* tile, int64_t i_head_kv, void* scratch) {
  const AttnParams* p = call->p;
  const AttnSegment& segment = call->segments[tile->segment];
  Work w;
  w.call = call;
  w.p = p;
  w.plan = static_cast<const AttnPlan*>(call->shared);
  w.tile = tile;
  w.runs = call->runs + segment.run0;
  w.n_runs = segment.n_runs;
  w.i_head_kv = i_head_kv;
  w.n_group = p->n_head / p->n_head_kv;
  w.n_rows = tile->n_tokens * w.n_group;
  w.k_bytes = kv_row_bytes(p->type_k, p->d_k);
  w.v_bytes = p->v_in_k ? w.k_bytes : kv_row_bytes(p->type_v, p->d_v);
  w.at = attn_scratch_layout(p);
  w.d_kp = w.at.d_k;
  w.d_vp = w.at.d_v;
  w.scratch = static_cast<float*>(scratch);
  w.cells = reinterpret_cast<ChunkCells*>(w.scratch + w.at.cells);
  return w;
}

inline const uint8_t* k_row(const Work& w, const ChunkPiece& piece, int64_t i) {
  return piece.page + w.p->k_off + (w.i_head_kv * KV_PAGE_CELLS + piece.cell + i) * w.k_bytes;
}
inline const uint8_t* v_row(const Work& w, const ChunkPiece& piece, int64_t i) {
  return piece.page + w.p->v_off + (w.i_head_kv * KV_PAGE_CELLS + piece.cell + i) * w.v_bytes;
}

// Query row r for cells encoded `delta` positions before their own: the input itself, or a turned copy in `buffer`.
inline const float* query_row(const Work& w, int64_t r, int32_t delta, float* buffer) {
  const AttnParams* p = w.p;
  const int64_t t = w.tile->t0 + r / w.n_group, head = w.i_head_kv * w.n_group + r % w.n_group;
  const float* q = w.call->q + t * w.call->ld_q + head * p->d_k;
  if (delta == 0 || p->rope.kind == ROPE_NONE) return q;
  float own_table[1024];
  const float* table = own_table;
  int i = 0;
  while (i < w.plan->n_deltas && w.plan->deltas[i] != delta) ++i;
  if (i < w.plan->n_deltas)
    table = w.plan->tables[i];
  else
    rope_delta_table(&p->rope, -delta, own_table);
  for (int64_t k = 0; k < p->d_k; ++k) buffer[k] = q[k];
  rotate_head(buffer, p->rope.kind, p->rope.n_rot, table);
  return buffer;
}

// Take the partial sums (m1, l1) into (m, l); a and b are the weights of the old and the new values.
CEXT_INLINE void merge_weights(VF* m, VF* l, VF m1, VF l1, VF* a, VF* b) {
  const VF top = vf_max(*m, m1);
  const VF shift = vf_select(vf_eq(top, vf_set1(kLowest)), vf_zero(), top);
  *a = vf_exp2(vf_sub(*m, shift));
  *b = vf_exp2(vf_sub(m1, shift));
  *l = vf_fma(l1, *b, vf_mul(*l, *a));
  *m = top;
}

CEXT_INLINE void merge_values(float* acc, const float* o, VF a, VF b, int64_t d_vp) {
  for (int64_t i = 0; i < d_vp; i += VF_W)
    vf_store(acc + i, vf_fma(vf_load(o + i), b, vf_mul(vf_load(acc + i), a)));
}

// The same for n_rows rows of d_vp values; m and l are arrays padded to whole vectors.
inline void merge_rows(float* m, float* l, float* acc, const float* m1, const float* l1, const float* o, int64_t n_rows,
                       int64_t d_vp) {
  for (int64_t r0 = 0; r0 < n_rows; r0 += VF_W) {
    VF vm = vf_load(m + r0), vl = vf_load(l + r0), a, b;
    merge_weights(&vm, &vl, vf_load(m1 + r0), vf_load(l1 + r0), &a, &b);
    vf_store(m + r0, vm);
    vf_store(l + r0, vl);
    float as[VF_W], bs[VF_W];
    vf_store(as, a);
    vf_store(bs, b);
    for (int64_t i = 0; i < VF_W && r0 + i < n_rows; ++i)
      merge_values(acc + (r0 + i) * d_vp, o + (r0 + i) * d_vp, vf_set1(as[i]), vf_set1(bs[i]), d_vp);
  }
}

// One row's answer: acc over its sum of weights, the sink counted in. A row that saw nothing gives zeros (acc is zero).
inline void finish_row(const Work& w, int64_t r, float m, float l, const float* acc) {
  const AttnParams* p = w.p;
  const int64_t t = w.tile->t0 + r / w.n_group, head = w.i_head_kv * w.n_group + r % w.n_group;
  float* out = w.call->out + t * w.call->ld_out + head * p->d_v;
  float factor = 0.0f;
  if (m != kLowest) {
    VF total = vf_set1(l), a = vf_set1(1.0f);
    if (p->sinks) {
      VF top = vf_set1(m), b;
      merge_weights(&top, &total, vf_set1(p->sinks[head] * kLog2E), vf_set1(1.0f), &a, &b);
    }
    factor = vf_first_lane(vf_div(a, total));
  }
  const VF f = vf_set1(factor);
  int64_t i = 0;
  for (; i + VF_W <= p->d_v; i += VF_W) vf_store(out + i, vf_mul(vf_load(acc + i), f));
  if (i < p->d_v) vf_store_n(out + i, vf_mul(vf_load(acc + i), f), p->d_v - i);
}

// Where the partial result of row r in chunk i_chunk of the tile lies.
inline float* part_of(const Work& w, int64_t i_chunk, int64_t r) {
  const int64_t i = (w.i_head_kv * w.tile->n_chunks + i_chunk) * w.n_rows + r;
  return w.plan->parts + w.tile->part0 + i * attn_part_floats(w.p);
}

inline void store_part(const Work& w, int64_t i_chunk, int64_t r, float m, float l, const float* o) {
  float* part = part_of(w, i_chunk, r);
  part[0] = m;
  part[1] = l;
  for (int64_t i = 0; i < w.d_vp; i += VF_W) vf_store(part + ATTN_LANES + i, vf_load(o + i));
}

inline void fill(float* x, float value, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = value;
}

}  // namespace
}  // namespace cext
