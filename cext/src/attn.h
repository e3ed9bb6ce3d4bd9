// Attention over the paged KV cache, in two phases of independent tasks: partial results per chunk of 256 positions of
// the sequence, merged in chunk order. No bit of the result depends on the number of threads or on page placement.
#pragma once
#include <cstdint>

#include "rope.h"

namespace cext {

enum : int32_t { KV_PAGE_CELLS = 64, ATTN_CHUNK = 256 };

enum SwaKind : int32_t {
  SWA_NONE = 0,
  SWA_STANDARD = 1,   // sees a cell where pos - cell_pos < n_swa
  SWA_CHUNKED = 2,    // sees a cell where cell_pos >= pos / n_swa * n_swa
  SWA_SYMMETRIC = 3,  // sees a cell where |pos - cell_pos| <= n_swa / 2
};

// Cells first .. first + count - 1 of a page; cell first + i stands at position pos0 + i * step of the sequence, and
// its K was rotated for position (pos0 + i * step) - delta. step >= 0. Runs of a sequence are in position order: from run
// to run neither first nor last positions decrease; cells that share a position keep the order of the runs.
struct KVRun {
  uint8_t* page;
  int32_t first, count;
  int32_t pos0, step;
  int32_t delta;
  int32_t reserved;
};
static_assert(sizeof(KVRun) == 32, "KVRun is mirrored in Python");

// Tokens [t0, t0 + n_tokens) of the ubatch belong to one sequence, whose cells are runs [run0, run0 + n_runs).
struct AttnSegment {
  int32_t t0, n_tokens;
  int64_t run0, n_runs;
};
static_assert(sizeof(AttnSegment) == 24, "AttnSegment is mirrored in Python");

// One layer. In a page, K stands at k_off and V at v_off, each [n_head_kv][KV_PAGE_CELLS][row], row = kv_row_bytes. Where
// V is a part of K's row (v_in_k), it stands at its place in the first one, of K's type.
struct AttnParams {
  int32_t n_head, n_head_kv;
  int32_t d_k, d_v;
  int32_t type_k, type_v;  // QuantType: f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 iq4_nl
  int64_t k_off, v_off;
  float scale;
  float softcap;  // 0 = none
  int32_t swa_kind, n_swa;
  int32_t causal;
  float max_alibi_bias;  // 0 = none
  int64_t v_in_k;
  const float* sinks;    // [n_head] logits that take weight but have no value, or null
  const float* rel_bias;  // [n_head][2 * rel_max + 1] added to scores by cell_pos - pos, -rel_max first, or null
  int64_t rel_max;        // cells farther away count as this far
  RopeParams rope;       // for runs with a delta; kind ROPE_NONE where the layer does not rotate
};
static_assert(sizeof(AttnParams) == 160, "AttnParams is mirrored in Python");

struct AttnCall {
  const AttnParams* p;
  int64_t n_tokens;
  const float* q;  // [n_tokens][n_head * d_k], rotated to pos
  int64_t ld_q;
  const int32_t* pos;  // [n_tokens]
  const AttnSegment* segments;
  int64_t n_segments;
  const KVRun* runs;
  float* out;  // [n_tokens][n_head * d_v]
  int64_t ld_out;
  void* shared;  // 64-byte aligned, shared_bytes >= attn_shared_bytes; the plan and the partial results
  int64_t shared_bytes;
};

// STATUS_OK, or why this layer cannot be computed (head sizes, types, blocks that do not lie within a head).
int attn_check(const AttnParams* p);
// Bytes of AttnCall::shared for ubatches of up to n_tokens_max over sequences of about n_ctx positions. More is never
// needed: where partial results would not fit, the work is split less.
int64_t attn_shared_bytes(const AttnParams* p, int64_t n_tokens_max, int64_t n_ctx);
// Bytes of scratch per thread, 64-byte aligned.
int64_t attn_scratch_bytes(const AttnParams* p);
// Plan the call into `shared`: the number of tasks of phase 1. One thread; before any task.
int64_t attn_prepare(const AttnCall* call, int n_threads);
// The number of tasks of phase 2 (often 0), after attn_prepare. All tasks of phase 1 end before one of phase 2 begins.
int64_t attn_n_merge(const AttnCall* call);

struct AttnKernels {
  void (*task)(const AttnCall* call, int64_t task, void* scratch);
  void (*merge)(const AttnCall* call, int64_t task, void* scratch);
  // Write K [n_head_kv * d_k] and V [n_head_kv * d_v] of tokens [t0, t1) to their cells. v may be null (no V cache).
  void (*store)(const AttnParams* p, const float* k, int64_t ldk, const float* v, int64_t ldv,
                uint8_t* const* page_of_token, const int32_t* cell_of_token, int64_t t0, int64_t t1);
};

const AttnKernels& attn_kernels();             // for isa_in_use()
const AttnKernels& attn_kernels_for(int isa);  // scalar where the build or the CPU lacks it

}  // namespace cext
