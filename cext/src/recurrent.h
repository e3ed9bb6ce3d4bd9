// Recurrences over the tokens of a sequence: what they carry from token to token lies in the sequence's slot, read from where
// the last micro batch left it and written to where this one leaves it. Parallel over sequences and heads or channels, serial
// over tokens; all in f32 and in one order, so that neither threads nor the cut into micro batches change a bit.
#pragma once
#include <cstdint>

namespace cext {

enum RecurrentKind : int32_t {
  RECURRENT_CONV = 0,   // short convolution of each channel: in x; w f32[d_k, n_head] by tap, oldest first; arg 1: silu behind it
  RECURRENT_SHIFT = 1,  // the last token's row minus this one: in x
  RECURRENT_SSM = 2,    // selective state space: in x, dt, B, C; w = A f32[n_head] or (arg 1) f32[n_head, d_k]; b = D f32[n_head]
  RECURRENT_DELTA = 3,  // gated delta rule: in q, k, v, gate (log decay), beta; arg 1: head h has key h % n_group
  RECURRENT_WKV6 = 4,   // in r, k, v, w (decay); w = bonus f32[n_head, d_k]
  RECURRENT_WKV7 = 5,   // in r, w (decay), k, v, a, b
  N_RECURRENT = 6,
};

enum { MAX_RECURRENT_INPUTS = 6 };

// One recurrence of a layer.
//   CONV, SHIFT: n_head channels, d_k taps (SHIFT: 2), d_v 1; state f32[d_k - 1, n_head].
//   SSM: n_head heads of d_v channels with d_k state values each, n_group groups of B and C; state f32[n_head, d_v, d_k].
//   DELTA: n_head value heads of d_v, n_group key heads of d_k; state f32[n_head, d_k, d_v].
//   WKV6: n_head heads of d_k = d_v; state f32[n_head, d_k (key), d_v (value)]; WKV7: f32[n_head, d_v (value), d_k (key)].
struct RecurrentParams {
  int32_t kind, arg;
  int64_t n_head, d_k, d_v, n_group;
  int64_t state_off;  // bytes from the start of a slot
  const float* w;
  const float* b;
};

// Consecutive tokens of one sequence and its slots; source may be null (all zeros) or the target itself.
struct StateSegment {
  int64_t t0, n_tokens;
  const uint8_t* source;
  uint8_t* target;
};

struct RecurrentRows {
  float* data;
  int64_t ld;
};

struct RecurrentCall {
  const RecurrentParams* p;
  const StateSegment* segments;
  int64_t n_segments;
  RecurrentRows in[MAX_RECURRENT_INPUTS];
  RecurrentRows out;  // f32[n_tokens, n_head * d_v]
};

int recurrent_n_inputs(int32_t kind);                         // 0 for a kind that is none
int64_t recurrent_state_values(const RecurrentParams* p);
int64_t recurrent_scratch_bytes(const RecurrentParams* p);    // of one thread

struct RecurrentKernels {
  int64_t (*n_tasks)(const RecurrentCall* call);
  void (*task)(const RecurrentCall* call, int64_t task, void* scratch);
};

const RecurrentKernels& recurrent_kernels();

}  // namespace cext
