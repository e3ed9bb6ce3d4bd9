// Plans attention calls, answers what the kernels ask about cells, and chooses the instruction set's kernels.
#include "attn.h"

#include <cmath>
#include <cstring>

#include "attn_plan.h"
#include "isa.h"
#include "kv_types.h"
#include "status.h"

namespace cext {
namespace {

constexpr int kMaxRot = 1024;
constexpr int kTasksPerThread = 4;

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

int64_t last_pos(const KVRun& run) { return run.pos0 + (int64_t)(run.count - 1) * run.step; }

int64_t align64(int64_t n) { return (n + 63) / 64 * 64; }

// First run that reaches position `pos`; n_runs where none does.
int64_t first_run(const KVRun* runs, int64_t n_runs, int64_t pos) {
  int64_t lo = 0, hi = n_runs;
  while (lo < hi) {
    const int64_t mid = (lo + hi) / 2;
    if (last_pos(runs[mid]) < pos)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

// Positions pos0, pos0 + step, ... of n cells, slot_step slots apart.
void put_positions(int32_t* pos, int32_t n, int32_t slot_step, int32_t pos0, int32_t step) {
  if (slot_step == 1) {
    for (int32_t i = 0; i < n; ++i) pos[i] = pos0 + i * step;
    return;
  }
  for (int32_t i = 0; i < (n - 1) * slot_step; ++i) pos[i] = ATTN_NO_POS;
  for (int32_t i = 0; i < n; ++i) pos[i * slot_step] = pos0 + i * step;
}

// Rotation tables of this thread's last few deltas: a decode asks for the same ones in every layer.
struct DeltaTables {
  RopeParams p;
  uint64_t factors_hash;
  int n;
  int next;
  int32_t deltas[ATTN_MAX_DELTAS];
  float tables[ATTN_MAX_DELTAS][kMaxRot];
};

uint64_t hash_floats(const float* x, int64_t n) {
  uint64_t h = 1469598103934665603ull;
  for (int64_t i = 0; x && i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    h = (h ^ bits) * 1099511628211ull;
  }
  return h;
}

const float* delta_table(const RopeParams* p, int32_t delta) {
  static thread_local DeltaTables cache;
  const uint64_t hash = hash_floats(p->freq_factors, p->n_rot / 2);
  if (std::memcmp(&cache.p, p, sizeof *p) != 0 || cache.factors_hash != hash) {
    cache.p = *p;
    cache.factors_hash = hash;
    cache.n = cache.next = 0;
  }
  for (int i = 0; i < cache.n; ++i)
    if (cache.deltas[i] == delta) return cache.tables[i];
  const int i = cache.next;
  cache.next = (i + 1) % ATTN_MAX_DELTAS;
  if (cache.n < ATTN_MAX_DELTAS) ++cache.n;
  cache.deltas[i] = delta;
  rope_delta_table(p, -delta, cache.tables[i]);
  return cache.tables[i];
}

// The tables of all deltas in the call's runs, copied into the plan's own memory at `room`.
void plan_deltas(const AttnCall* call, AttnPlan* plan, float* room) {
  const RopeParams* rope = &call->p->rope;
  plan->n_deltas = 0;
  if (rope->kind == ROPE_NONE) return;
  int32_t last = 0;
  for (int64_t s = 0; s < call->n_segments; ++s) {
    const KVRun* runs = call->runs + call->segments[s].run0;
    for (int64_t r = 0; r < call->segments[s].n_runs; ++r) {
      const int32_t delta = runs[r].delta;
      if (delta == 0 || delta == last) continue;
      last = delta;
      int i = 0;
      while (i < plan->n_deltas && plan->deltas[i] != delta) ++i;
      if (i < plan->n_deltas || i == ATTN_MAX_DELTAS) continue;
      float* table = room + (int64_t)i * rope->n_rot;
      std::memcpy(table, delta_table(rope, delta), (size_t)rope->n_rot * sizeof(float));
      plan->deltas[i] = delta;
      plan->tables[i] = table;
      plan->n_deltas = i + 1;
    }
  }
}

// The chunks that tokens [t0, t0 + n) of a segment may see.
void set_chunks(const AttnCall* call, AttnTile* tile) {
  const AttnSegment& segment = call->segments[tile->segment];
  tile->chunk0 = tile->n_chunks = 0;
  if (segment.n_runs == 0) return;
  const KVRun* runs = call->runs + segment.run0;
  int64_t lo = INT32_MAX, hi = INT32_MIN;
  for (int32_t t = tile->t0; t < tile->t0 + tile->n_tokens; ++t) {
    const AttnRange seen = attn_range(call->p, call->pos[t]);
    if (seen.lo < lo) lo = seen.lo;
    if (seen.hi > hi) hi = seen.hi;
  }
  const int64_t first = runs[0].pos0, last = last_pos(runs[segment.n_runs - 1]);
  if (lo < first) lo = first;
  if (hi > last) hi = last;
  if (lo > hi) return;
  tile->chunk0 = (int32_t)floor_div(lo, ATTN_CHUNK);
  tile->n_chunks = (int32_t)(floor_div(hi, ATTN_CHUNK) - tile->chunk0 + 1);
}

// Tokens per tile of a segment: all the rows of a tile share each read of K and V.
int32_t tile_tokens(const AttnParams* p, int32_t n_tokens, int n_threads) {
  const int32_t n_group = p->n_head / p->n_head_kv;
  if (attn_is_direct(p, n_tokens)) return 1;
  int32_t n = ATTN_TILE_ROWS / n_group;
  if (n < 1) n = 1;
  // Any tile size gives the same bits, so few tokens may be dealt to several threads.
  while (n * n_group > 32 && (int64_t)((n_tokens + n - 1) / n) * p->n_head_kv < 2 * n_threads) n = (n + 1) / 2;
  return n;
}

// Deal the chunks of each tile to several tasks where whole tiles would leave threads idle.
void split_tiles(const AttnCall* call, AttnPlan* plan, int n_threads, int64_t max_floats) {
  const AttnParams* p = call->p;
  const int64_t n_units = plan->n_tiles * p->n_head_kv, n_want = (int64_t)kTasksPerThread * n_threads;
  int64_t n_chunks = 0, n_floats = 0;
  int32_t longest = 0;
  for (int64_t i = 0; i < plan->n_tiles; ++i) {
    const AttnTile& tile = plan->tiles[i];
    const int64_t rows = (int64_t)tile.n_tokens * p->n_head;
    n_chunks += (int64_t)tile.n_chunks * p->n_head_kv;
    n_floats += rows * tile.n_chunks * attn_part_floats(p);
    if (tile.n_chunks > longest) longest = tile.n_chunks;
  }
  const bool is_worth = n_threads > 1 && n_units < n_want && longest >= (n_units < n_threads ? 2 : 4);
  if (!is_worth || n_floats > max_floats) return;
  const int32_t per_task = (int32_t)((n_chunks + n_want - 1) / n_want);
  int64_t part = 0;
  for (int64_t i = 0; i < plan->n_tiles; ++i) {
    AttnTile& tile = plan->tiles[i];
    if (tile.n_chunks <= per_task) continue;
    tile.chunks_per_task = per_task;
    tile.part0 = part;
    part += (int64_t)tile.n_tokens * p->n_head * tile.n_chunks * attn_part_floats(p);
  }
}

int64_t tables_bytes(const AttnParams* p) {
  const int64_t n_rot = p->rope.kind == ROPE_NONE ? 0 : p->rope.n_rot;
  return align64(ATTN_MAX_DELTAS * n_rot * (int64_t)sizeof(float));
}

int64_t fixed_bytes(const AttnParams* p, int64_t n_tokens) {
  return align64(sizeof(AttnPlan)) + tables_bytes(p) + align64(n_tokens * (int64_t)sizeof(AttnTile));
}

}  // namespace

bool attn_is_direct(const AttnParams* p, int32_t n_tokens) {
  return n_tokens <= ATTN_DIRECT_TOKENS && p->n_head / p->n_head_kv <= ATTN_DIRECT_HEADS;
}

AttnRange attn_range(const AttnParams* p, int32_t pos) {
  int64_t lo = (int64_t)INT32_MIN + 1, hi = p->causal ? pos : INT32_MAX;
  switch (p->swa_kind) {
    case SWA_STANDARD: lo = (int64_t)pos - p->n_swa + 1; break;
    case SWA_CHUNKED: lo = floor_div(pos, p->n_swa) * p->n_swa; break;
    case SWA_SYMMETRIC:
      lo = (int64_t)pos - p->n_swa / 2;
      if (hi > (int64_t)pos + p->n_swa / 2) hi = (int64_t)pos + p->n_swa / 2;
      break;
    default: break;
  }
  if (lo <= INT32_MIN) lo = (int64_t)INT32_MIN + 1;
  return {(int32_t)lo, (int32_t)hi};
}

const AttnTile* attn_tile_of(const AttnPlan* plan, int64_t task) {
  int64_t lo = 0, hi = plan->n_tiles - 1;
  while (lo < hi) {
    const int64_t mid = (lo + hi + 1) / 2;
    if (plan->tiles[mid].task0 <= task)
      lo = mid;
    else
      hi = mid - 1;
  }
  return plan->tiles + lo;
}

ChunkCursor attn_chunk_begin(const KVRun* runs, int64_t n_runs, int32_t chunk) {
  const int64_t from = (int64_t)chunk * ATTN_CHUNK, to = from + ATTN_CHUNK - 1;
  ChunkCursor at = {first_run(runs, n_runs, from), 0, 0, 0};
  int64_t end = from - 1;  // last position taken so far
  for (int64_t r = at.run; r < n_runs && runs[r].pos0 <= to && !at.is_dense; ++r) {
    if (runs[r].count <= 0) continue;
    const bool repeats = runs[r].step == 0 && runs[r].count > 1;
    at.is_dense = repeats || (r > at.run && runs[r].pos0 <= end);
    end = last_pos(runs[r]);
  }
  return at;
}

void attn_chunk_next(const KVRun* runs, int64_t n_runs, int32_t chunk, AttnRange visible, ChunkCursor* at,
                     ChunkCells* out) {
  const int64_t from = (int64_t)chunk * ATTN_CHUNK, to = from + ATTN_CHUNK - 1;
  const int64_t lo = visible.lo > from ? visible.lo : from, hi = visible.hi < to ? visible.hi : to;
  out->n_pieces = out->n_slots = out->n_cells = 0;
  for (; at->run < n_runs && runs[at->run].pos0 <= hi; ++at->run, at->cell = 0) {
    const KVRun& run = runs[at->run];
    if (run.count <= 0 || last_pos(run) < lo || lo > hi) continue;
    int64_t i0 = 0, i1 = run.count - 1;
    if (run.step > 0) {
      if (run.pos0 < lo) i0 = (lo - run.pos0 + run.step - 1) / run.step;
      if (last_pos(run) > hi) i1 = (hi - run.pos0) / run.step;
    }
    if (i0 < at->cell) i0 = at->cell;
    int64_t n = i1 - i0 + 1;
    if (n <= 0) continue;
    const int64_t pos0 = run.pos0 + i0 * run.step;
    const int64_t slot = at->is_dense ? out->n_slots : pos0 - from;
    const bool is_cut = at->is_dense && n > ATTN_CHUNK - slot;
    if (is_cut) n = ATTN_CHUNK - slot;
    if (n == 0) {
      at->cell = i0;
      return;
    }
    const int32_t step = at->is_dense ? 1 : run.step > 0 ? run.step : 1;
    out->pieces[out->n_pieces++] = {run.page, (int32_t)(run.first + i0), (int32_t)n, (int32_t)slot, step, run.delta};
    while (out->n_slots < slot) out->pos[out->n_slots++] = ATTN_NO_POS;
    put_positions(out->pos + slot, (int32_t)n, step, (int32_t)pos0, run.step);
    out->n_slots = (int32_t)(slot + (n - 1) * step + 1);
    out->n_cells += (int32_t)n;
    if (is_cut) {
      at->cell = i0 + n;
      return;
    }
  }
  at->is_done = 1;
}

float attn_slope(const AttnParams* p, int32_t i_head) {
  if (p->max_alibi_bias <= 0.0f) return 0.0f;
  int32_t n = 1;
  while (2 * n <= p->n_head) n *= 2;
  const double base = std::exp2(-(double)p->max_alibi_bias / (i_head < n ? n : 2 * n));
  return (float)std::pow(base, i_head < n ? i_head + 1 : 2 * (i_head - n) + 1);
}

AttnScratch attn_scratch_layout(const AttnParams* p) {
  const int64_t n_group = p->n_head / p->n_head_kv;
  AttnScratch s = {};
  s.n_rows = attn_pad(n_group > (int64_t)ATTN_TILE_ROWS ? n_group : (int64_t)ATTN_TILE_ROWS);
  s.d_k = attn_pad(p->d_k);
  s.d_v = attn_pad(p->d_v);
  int64_t at = 0;
  const auto take = [&at](int64_t n) { const int64_t place = at; at += align64(n); return place; };
  s.q = take(s.d_k * s.n_rows);
  s.rows_lo = take(8 * s.n_rows);
  s.tile = take((ATTN_SUBTILE + 1) * (s.d_k > s.d_v ? s.d_k : s.d_v));
  s.scales = take(ATTN_SUBTILE * (s.d_k > s.d_v ? s.d_k : s.d_v) / 32);
  s.scores = take(s.n_rows * ATTN_CHUNK);
  s.chunk_o = take(2 * s.n_rows * s.d_v);
  s.acc = take(s.n_rows * s.d_v);
  s.cells = take((int64_t)(sizeof(ChunkCells) / sizeof(float)) + 1);
  s.total = at;
  return s;
}

int attn_check(const AttnParams* p) {
  if (p->n_head_kv < 1 || p->n_head < p->n_head_kv || p->n_head % p->n_head_kv != 0) return STATUS_BAD_ARGUMENT;
  if (p->n_head / p->n_head_kv > ATTN_MAX_ROWS) return STATUS_BAD_ARGUMENT;
  if (kv_row_bytes(p->type_k, p->d_k) == 0 || kv_row_bytes(p->type_v, p->d_v) == 0) return STATUS_BAD_TYPE;
  if (p->swa_kind < SWA_NONE || p->swa_kind > SWA_SYMMETRIC) return STATUS_BAD_ARGUMENT;
  if (p->swa_kind != SWA_NONE && p->n_swa < 1) return STATUS_BAD_ARGUMENT;
  if (p->rel_bias && p->rel_max < 0) return STATUS_BAD_ARGUMENT;
  if (p->rope.kind < ROPE_NONE || p->rope.kind > ROPE_NEOX) return STATUS_BAD_ARGUMENT;
  const bool rotates = p->rope.kind != ROPE_NONE;
  if (rotates && (p->rope.n_rot < 2 || p->rope.n_rot > p->d_k || p->rope.n_rot % 2 != 0)) return STATUS_BAD_ARGUMENT;
  return STATUS_OK;
}

int64_t attn_scratch_bytes(const AttnParams* p) { return attn_scratch_layout(p).total * (int64_t)sizeof(float); }

int64_t attn_shared_bytes(const AttnParams* p, int64_t n_tokens_max, int64_t n_ctx) {
  const int64_t n_chunks = n_ctx / ATTN_CHUNK + 2, n_tokens = n_tokens_max < 4 ? n_tokens_max : 4;
  const int64_t parts = n_tokens * p->n_head * n_chunks * attn_part_floats(p) * (int64_t)sizeof(float);
  return fixed_bytes(p, n_tokens_max) + align64(parts);
}

int64_t attn_prepare(const AttnCall* call, int n_threads) {
  // SAFETY: `shared` is 64-byte aligned and holds fixed_bytes of this call's tokens (attn_shared_bytes).
  AttnPlan* plan = static_cast<AttnPlan*>(call->shared);
  uint8_t* at = static_cast<uint8_t*>(call->shared) + align64(sizeof(AttnPlan));
  plan_deltas(call, plan, reinterpret_cast<float*>(at));
  plan->tiles = reinterpret_cast<AttnTile*>(at + tables_bytes(call->p));
  const int64_t fixed = fixed_bytes(call->p, call->n_tokens);
  plan->parts = reinterpret_cast<float*>(static_cast<uint8_t*>(call->shared) + fixed);
  plan->n_tiles = 0;
  // Late tiles see the most cells: they come first, so that the last tasks are the small ones.
  for (int64_t s = call->n_segments - 1; s >= 0; --s) {
    const AttnSegment& segment = call->segments[s];
    const int32_t n = tile_tokens(call->p, segment.n_tokens, n_threads);
    for (int32_t i = (segment.n_tokens - 1) / n * n; i >= 0 && segment.n_tokens > 0; i -= n) {
      AttnTile* tile = plan->tiles + plan->n_tiles++;
      *tile = {};
      tile->segment = (int32_t)s;
      tile->t0 = segment.t0 + i;
      tile->n_tokens = segment.n_tokens - i < n ? segment.n_tokens - i : n;
      tile->is_direct = attn_is_direct(call->p, segment.n_tokens);
      set_chunks(call, tile);
      tile->chunks_per_task = tile->n_chunks > 0 ? tile->n_chunks : 1;
      tile->part0 = -1;
    }
  }
  split_tiles(call, plan, n_threads, (call->shared_bytes - fixed) / (int64_t)sizeof(float));
  plan->n_tasks = plan->n_merge = 0;
  for (int64_t i = 0; i < plan->n_tiles; ++i) {
    AttnTile* tile = plan->tiles + i;
    const int64_t n_groups = tile->part0 < 0 ? 1 : (tile->n_chunks - 1) / tile->chunks_per_task + 1;
    tile->task0 = plan->n_tasks;
    plan->n_tasks += n_groups * call->p->n_head_kv;
    if (tile->part0 >= 0) plan->n_merge = plan->n_tiles * call->p->n_head_kv;
  }
  return plan->n_tasks;
}

int64_t attn_n_merge(const AttnCall* call) { return static_cast<const AttnPlan*>(call->shared)->n_merge; }

extern const AttnKernels kAttnKernels_scalar;
#if defined(__x86_64__) || defined(_M_X64)
extern const AttnKernels kAttnKernels_avx2, kAttnKernels_avx512;
#endif

const AttnKernels& attn_kernels_for(int isa) {
#if defined(__x86_64__) || defined(_M_X64)
  if (isa == ISA_AVX512 && isa_best() >= ISA_AVX512) return kAttnKernels_avx512;
  if (isa >= ISA_AVX2 && isa_best() >= ISA_AVX2) return kAttnKernels_avx2;
#endif
  return kAttnKernels_scalar;
}

const AttnKernels& attn_kernels() { return attn_kernels_for(isa_in_use()); }

}  // namespace cext
