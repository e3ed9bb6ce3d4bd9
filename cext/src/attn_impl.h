// The attention kernels, written once over the vectors of simd_<isa>.h, which the including file chooses.
#pragma once
#include "attn_direct.h"
#include "attn_tile.h"

namespace cext {
namespace {

void attn_task(const AttnCall* call, int64_t task, void* scratch) {
  const AttnPlan* plan = static_cast<const AttnPlan*>(call->shared);
  const AttnTile* tile = attn_tile_of(plan, task);
  const int64_t i = task - tile->task0, n_head_kv = call->p->n_head_kv;
  const Work w = begin_work(call, tile, i % n_head_kv, scratch);
  const int64_t chunk0 = i / n_head_kv * tile->chunks_per_task;
  const int64_t end = chunk0 + tile->chunks_per_task, chunk1 = end < tile->n_chunks ? end : tile->n_chunks;
  if (tile->is_direct)
    direct_task(w, chunk0, chunk1);
  else
    tile_task(w, chunk0, chunk1);
}

void attn_merge(const AttnCall* call, int64_t task, void* scratch) {
  const AttnPlan* plan = static_cast<const AttnPlan*>(call->shared);
  const AttnTile* tile = plan->tiles + task / call->p->n_head_kv;
  if (tile->part0 < 0) return;
  const Work w = begin_work(call, tile, task % call->p->n_head_kv, scratch);
  float* acc = w.scratch + w.at.acc;
  for (int64_t r = 0; r < w.n_rows; ++r) {
    VF m = vf_set1(kLowest), l = vf_zero();
    fill(acc, 0.0f, w.d_vp);
    for (int64_t c = 0; c < tile->n_chunks; ++c) {
      const float* part = part_of(w, c, r);
      VF a, b;
      merge_weights(&m, &l, vf_set1(part[0]), vf_set1(part[1]), &a, &b);
      merge_values(acc, part + ATTN_LANES, a, b, w.d_vp);
    }
    finish_row(w, r, vf_first_lane(m), vf_first_lane(l), acc);
  }
}

inline void store_row(int32_t type, const float* x, int64_t d, uint8_t* row) {
  if (d % VF_W != 0 || (type != TYPE_F16 && type != TYPE_BF16)) {
    kv_encode_row(type, x, d, row);
    return;
  }
  uint16_t* out = reinterpret_cast<uint16_t*>(row);
  for (int64_t i = 0; i < d; i += VF_W) {
    if (type == TYPE_F16)
      vf_store_f16(out + i, vf_load(x + i));
    else
      vf_store_bf16(out + i, vf_load(x + i));
  }
}

void attn_store(const AttnParams* p, const float* k, int64_t ldk, const float* v, int64_t ldv,
                uint8_t* const* page_of_token, const int32_t* cell_of_token, int64_t t0, int64_t t1) {
  const int64_t k_bytes = kv_row_bytes(p->type_k, p->d_k), v_bytes = kv_row_bytes(p->type_v, p->d_v);
  for (int64_t t = t0; t < t1; ++t)
    for (int64_t h = 0; h < p->n_head_kv; ++h) {
      const int64_t cell = h * KV_PAGE_CELLS + cell_of_token[t];
      store_row(p->type_k, k + t * ldk + h * p->d_k, p->d_k, page_of_token[t] + p->k_off + cell * k_bytes);
      if (v) store_row(p->type_v, v + t * ldv + h * p->d_v, p->d_v, page_of_token[t] + p->v_off + cell * v_bytes);
    }
}

constexpr AttnKernels kAttnKernels = {attn_task, attn_merge, attn_store};

}  // namespace
}  // namespace cext
