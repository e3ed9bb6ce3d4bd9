// The plan of one attention call, shared by attn.cpp, which makes it, and the kernels, which carry it out.
//
// Tokens of a segment are cut into tiles; a task is (tile, KV head, some chunks). A chunk's result for a query row is
// (m, l, o): the largest score, the sum of exp(score - m), and the sum of exp(score - m) * V. It depends on nothing but
// the row and the chunk's cells. Results are merged in chunk order, in the task itself or, where a tile's chunks are
// dealt to several tasks, in the merge phase, by the same function: hence the same bits however the work is split.
#pragma once
#include <cstdint>

#include "attn.h"

namespace cext {

enum : int32_t {
  ATTN_SUBTILE = 64,      // slots whose K or V are widened at a time
  ATTN_LANES = 16,        // widest vector: rows and head sizes are padded to it
  ATTN_TILE_ROWS = 96,    // query rows of a tile of many tokens
  ATTN_MAX_ROWS = 1024,    // most query heads per KV head
  ATTN_DIRECT_HEADS = 8,  // most query heads per KV head of the one-token kernel
  ATTN_DIRECT_TOKENS = 4,  // most tokens of a segment that go through it, one by one
  ATTN_MAX_DELTAS = 8,
  ATTN_NO_POS = INT32_MIN,  // slot without a cell
};

static inline int64_t attn_pad(int64_t n) { return (n + ATTN_LANES - 1) / ATTN_LANES * ATTN_LANES; }

struct AttnTile {
  int64_t task0;  // tasks task0 + i_group * n_head_kv + i_head_kv
  int64_t part0;  // first float of its partial results, -1 where one task does all chunks of a head
  int32_t segment, t0, n_tokens;
  int32_t is_direct;        // one token, by the one-token kernel
  int32_t chunk0, n_chunks;  // the chunks that some token of the tile can see
  int32_t chunks_per_task;
  int32_t reserved;
};

struct AttnPlan {
  int64_t n_tiles, n_tasks, n_merge;
  int32_t n_deltas;
  int32_t deltas[ATTN_MAX_DELTAS];
  const float* tables[ATTN_MAX_DELTAS];  // [n_rot] rotation by -delta
  AttnTile* tiles;                       // by task0
  float* parts;
};

// Whether a segment of so many tokens goes through the one-token kernel; never a question of threads.
bool attn_is_direct(const AttnParams* p, int32_t n_tokens);

// Positions that the token at `pos` sees.
struct AttnRange {
  int32_t lo, hi;
};
AttnRange attn_range(const AttnParams* p, int32_t pos);

// The first tile whose task0 is at most `task`, from the end.
const AttnTile* attn_tile_of(const AttnPlan* plan, int64_t task);

// Cells of one chunk in slots. Where all positions differ, slot = position - first position of the chunk, so that a
// slot does not depend on which other cells exist; else slots count the cells.
struct ChunkPiece {
  const uint8_t* page;
  int32_t cell, count;       // cells cell .. cell + count - 1
  int32_t slot, slot_step;
  int32_t delta;
};
struct ChunkCells {
  int32_t n_pieces, n_slots, n_cells;
  int32_t pos[ATTN_CHUNK];  // by slot; ATTN_NO_POS where there is none
  ChunkPiece pieces[ATTN_CHUNK];
};
struct ChunkCursor {
  int64_t run, cell;  // where the next cells start
  int32_t is_dense;
  int32_t is_done;
};

ChunkCursor attn_chunk_begin(const KVRun* runs, int64_t n_runs, int32_t chunk);
// Up to ATTN_CHUNK cells of the chunk with positions in [lo, hi]. Again while !is_done.
void attn_chunk_next(const KVRun* runs, int64_t n_runs, int32_t chunk, AttnRange visible, ChunkCursor* at,
                     ChunkCells* out);

// Weight of |distance| in the scores of head i_head (ALiBi); 0 without. Source: arXiv:2108.12409, section 3.
float attn_slope(const AttnParams* p, int32_t i_head);

// What is added to a score of head i_head where the cell stands `distance` positions behind the token (before it: < 0).
static inline float attn_rel_bias(const AttnParams* p, int64_t i_head, int64_t distance) {
  const int64_t far = p->rel_max;
  const int64_t at = distance < -far ? -far : distance > far ? far : distance;
  return p->rel_bias[i_head * (2 * far + 1) + far + at];
}

// Scratch of one thread, in floats.
struct AttnScratch {
  int64_t q, rows_lo, tile, scales, scores, chunk_o, acc, cells, total;
  int64_t n_rows;  // padded
  int64_t d_k, d_v;  // padded
};
AttnScratch attn_scratch_layout(const AttnParams* p);

// Floats of one partial result: m, l, padding, o[padded d_v].
static inline int64_t attn_part_floats(const AttnParams* p) { return ATTN_LANES + attn_pad(p->d_v); }

}  // namespace cext
