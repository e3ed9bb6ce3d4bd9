// Runs a compiled graph: a list of stages, each a loop over independent tasks with a barrier behind it. A stage is row work
// (several row operations one after the other on each row), a matrix product of one activation with several weights, or one
// layer's attention, or a recurrence over each sequence's tokens. Mixtures of experts add a stage that sorts (token, expert) pairs by expert, after which "rows" are pairs.
// Sizes that depend on the micro batch are bound at run time; buffers lie at fixed places of one arena.
#pragma once
#include <cstdint>
#include <vector>

#include "attn.h"
#include "matmul.h"
#include "recurrent.h"
#include "rope.h"
#include "threadpool.h"

namespace cext {

// What is bound anew for every run.
enum InputSlot : int32_t {
  INPUT_TOKENS = 0,   // i32[n_tokens]
  INPUT_EMBD = 1,     // f32[n_tokens, n_embd]
  INPUT_POS = 2,      // i32[n_tokens]
  INPUT_OUT_IDS = 3,  // i32[n_outputs]
  OUTPUT_LOGITS = 4,  // f32[n_outputs, n_vocab]
  OUTPUT_EMBD = 5,    // f32[n_outputs, n_embd]
  INPUT_ROPE_POS = 6, // i32[n_tokens], or i32[n_tokens, 4] where heads turn by several axes: positions to rotate by: the memory may have moved the frame they count from
  N_SLOTS = 7,
};

enum Space : int32_t { SPACE_NONE = 0, SPACE_ARENA = 1, SPACE_SLOT = 2 };

// Where rows of 4-byte values lie.
struct Operand {
  int32_t space;
  int32_t slot;
  int64_t offset;  // bytes from the start of the arena or the slot
  int64_t ld;      // values from one row to the next
};

enum RowOpKind : int32_t {
  ROW_GET_PACKED = 0,  // out = row ids[r] of a packed matrix
  ROW_GET_MAPPED = 1,  // out = row ids[r] of a matrix as it lies in the file
  ROW_GATHER = 2,      // out = x[ids[r]]
  ROW_RMS_NORM = 3,    // n_sub norms of n values
  ROW_LAYER_NORM = 4,
  ROW_ADD = 5,
  ROW_ADD_VECTOR = 6,  // out = x + w
  ROW_MUL = 7,
  ROW_MUL_VECTOR = 8,
  ROW_SCALE = 9,
  ROW_UNARY = 10,
  ROW_GLU = 11,
  ROW_SOFTCAP = 12,
  ROW_ROPE = 13,       // n_sub heads of n values, table y
  ROW_COPY = 14,
  ROW_QUANTIZE = 15,   // out = 8-bit activations of x
  ROW_STORE_KV = 16,   // x = k, y = v into the cache
  ROW_ROPE_TABLE = 17, // out = table of pos[r]
  ROW_SOFTMAX = 18,
  ROW_TOP_K = 19,      // out i32[arg] = places of the largest of x, largest first; n_sub groups of which n_rot may be chosen from
  ROW_PICK = 20,       // out[j] = x[ids[j]], j < n, ids = y; x = w where there is one
  ROW_DIV_SUM = 21,    // out = x / max(sum(x), f)
  ROW_CLAMP = 23,      // out = x limited to [-f, f]
  ROW_MUL_SCALAR = 24, // out = x * y[0]
  ROW_SCALE_POS = 25,  // out = x * (log(floor((pos + n_rot) / arg) + 1) * f + 1)
  ROW_XIELU = 26,      // out = xIELU(x), w = alpha_n, alpha_p, beta, eps
  ROW_COPY_PARTS = 27, // n_sub parts of n values: from x, n_rot values apart (0: all the same), to out, arg values apart
  ROW_MUL_HEAD_SUM = 28, // out = x * sum(y), for each of n_sub heads of n values
  ROW_COMBINE = 22,    // out = sum over j < n_sub of y[j] * (row z[j] of x)
};

enum : int32_t { GLU_OAI = 100 };  // a gate that no single activation is: beside the numbers of UnaryOp

struct RowOp {
  int32_t kind;
  int32_t arg;     // activation, rope kind, index of rope parameters, attention or matrix
  int64_t n;       // values of a row, or of one of its n_sub parts
  int64_t n_sub;
  int64_t n_rot;
  float f;         // eps, factor, cap
  Operand x, y, z, out;
  const float* w;
  const float* b;
};

struct MatmulItem {
  PackedMatrix matrix;   // of expert 0 where there are experts
  int64_t expert_bytes;  // from one expert's matrix to the next
  const float* bias;     // f32[n_rows], or f32[n_expert, n_rows], or null
  Operand out;
};

struct MappedRows {
  int32_t type;
  int64_t row_bytes, n_cols, n_rows;
  const uint8_t* data;
};

struct Stage {
  enum Kind : int32_t { ROWS = 0, MATMUL = 1, ATTN = 2, SORT = 3, RECURRENT = 4 } kind = ROWS;
  int32_t rows_are_outputs = 0;  // rows: n_outputs, else n_tokens
  int32_t row_factor = 1;        // times this: experts used per token, where rows are pairs
  int32_t name = 0;              // index of the node's name, for error messages
  std::vector<RowOp> ops;           // ROWS
  std::vector<MatmulItem> items;    // MATMUL
  Operand x{};                      // MATMUL: f32 rows or the 8-bit form; ATTN: q
  Operand out{};                    // ATTN
  int32_t is_q8 = 0;
  int32_t glu = -1;                 // MATMUL: UnaryOp of act(items[0]) * items[1] into items[0].out, or -1
  int32_t n_expert = 0;             // MATMUL: products with the expert of each row; SORT
  int32_t per_head = 0;             // MATMUL: expert e multiplies the e-th part of every row instead
  Operand token_of{};               // SORT: out i32[pairs], the token of each sorted pair
  Operand sorted_of{};              // SORT: out i32[pairs], the sorted place of each (token, j)
  Operand offsets{};                // SORT: out, MATMUL: in: i32[n_expert + 1], first sorted pair of each expert
  int32_t attn = -1;                // ATTN: index of its parameters
  int32_t recurrent = -1;           // RECURRENT: index of its parameters
  Operand inputs[MAX_RECURRENT_INPUTS]{};
};

// One cache's cells for a micro batch.
struct CacheBinding {
  uint8_t* const* pages;   // [n_tokens] page that each token's cell is in
  const int32_t* cells;    // [n_tokens]
  const KVRun* runs;
  const AttnSegment* segments;
  int64_t n_segments;
};

enum { MAX_CACHES = 4 };

struct RunBinding {
  int64_t n_tokens, n_outputs;
  int64_t n_vocab;                // values in a row of OUTPUT_LOGITS
  void* slots[N_SLOTS];
  CacheBinding caches[MAX_CACHES];
  const StateSegment* states;     // where recurrences read and leave their state
  int64_t n_states;
  uint8_t* arena;
  const int32_t* abort_flag;      // non-zero: stop
  int (*poll)(void*);             // asked behind a stage, at most once in poll_period_ns, or null; non-zero: stop
  void* poll_arg;
  int64_t poll_period_ns;
  mutable int64_t last_poll_ns;   // when poll was asked last; kept from run to run, for runs shorter than that
  int32_t check;                  // look at every stage's output for values that are not finite
  int32_t n_threads;
};

struct Program {
  std::vector<Stage> stages;
  std::vector<AttnParams> attns;
  std::vector<int32_t> attn_cache;  // cache index of each
  std::vector<RopeParams> ropes;
  std::vector<RecurrentParams> recurrents;
  std::vector<PackedMatrix> tables;   // for ROW_GET_PACKED
  std::vector<MappedRows> mapped;     // for ROW_GET_MAPPED
  int64_t n_tokens_max = 0, n_ctx = 0;
  int64_t two_term_tokens = TWO_TERM_TOKENS;  // up to which activations are the sum of two 8-bit terms
  int64_t scratch_bytes = 0;  // of one thread
  int64_t shared_bytes = 0;   // of attention
  int64_t stage_ns[5] = {0, 0, 0, 0, 0};  // time spent in each kind of stage

  // After the last stage was added: sizes of scratch. STATUS_OK or STATUS_BAD_TYPE.
  int finish();
};

// Logits that are not finite give STATUS_NOT_FINITE; with run->check, *failed_stage is the first stage whose output was not.
// `scratch`: n_threads * scratch_bytes, `shared`: shared_bytes; both 64-byte aligned. On failure *failed_stage says which.
int program_run(Program* program, const RunBinding* run, ThreadPool* pool, void* scratch, void* shared, int64_t* failed_stage);

}  // namespace cext
