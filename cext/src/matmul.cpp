// Chooses the kernels, and lays out activations and scratch.
#include "matmul.h"

#include "matmul_impl.h"

namespace cext {
namespace {

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t row_bytes(int64_t n_cols) {
  const int64_t bytes = round_up(n_cols, 64);
  return bytes % 512 == 0 ? bytes + 64 : bytes;  // tokens of a tile would share cache sets at such a stride
}

}  // namespace

int64_t act_q8_bytes(int64_t n_rows, int64_t n_cols) {
  const int64_t n_blocks = round_up(n_cols, BLOCK_COLS) / BLOCK_COLS;
  return n_rows * row_bytes(n_cols) + 7 * round_up(n_rows * n_blocks * 4, 64) + 64;  // vectors read past the end
}

void act_q8_bind(ActQ8* act, void* mem, int64_t n_tokens, int64_t n_cols, int64_t n_terms) {
  const int64_t n_rows = n_tokens * n_terms, n_blocks = round_up(n_cols, BLOCK_COLS) / BLOCK_COLS;
  const int64_t floats = round_up(n_rows * n_blocks * 4, 64) / 4;
  act->n_tokens = n_tokens;
  act->n_cols = n_cols;
  act->n_terms = n_terms;
  act->ld_q = row_bytes(n_cols);
  act->n_blocks = n_blocks;
  act->q = static_cast<int8_t*>(mem);
  act->d = reinterpret_cast<float*>(act->q + n_rows * act->ld_q);  // SAFETY: ld_q and mem are multiples of 64
  act->s = act->d + floats;
  act->s16 = act->s + floats;
  act->sum = act->s16 + 2 * floats;
  act->sum16 = act->sum + floats;
}

const MatmulKernels& matmul_kernels_for(Isa isa) {
#if defined(__x86_64__) || defined(_M_X64)
  if (isa == ISA_AVX512) return MATMUL_AVX512;
  if (isa == ISA_AVX2) return MATMUL_AVX2;
#endif
  (void)isa;
  return MATMUL_SCALAR;
}

const MatmulKernels& matmul_kernels() { return matmul_kernels_for(isa_in_use()); }

int64_t matmul_scratch_bytes(int64_t n_cols) {
  // and what four rows' sums start at
  return SCRATCH_WEIGHTS + SCRATCH_SCALES + 4 * (round_up(n_cols, BLOCK_COLS) / BLOCK_COLS * 2 * 4 + 64);
}

int64_t matmul_chunk_panels(const PackedMatrix* m, int64_t n_tokens, int n_threads) {
  const int64_t per_thread = (m->n_panels + n_threads - 1) / n_threads;
  // Few tokens: 128 KB of weights a task, for a task's first lines are not fetched ahead. Many: a million products, which
  // for a long prompt is one strip; small tasks share out evenly.
  int64_t chunk = n_tokens <= 8 ? 131072 / m->panel_bytes : 1000000 / (n_tokens * m->n_cols * PANEL_ROWS_N);
  if (chunk > (per_thread + 1) / 2) chunk = (per_thread + 1) / 2;
  chunk -= chunk % STRIP_PANELS;
  return chunk < STRIP_PANELS ? STRIP_PANELS : chunk;
}

}  // namespace cext
