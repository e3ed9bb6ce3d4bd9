// Products of packed weights with activations: out[token, row] = sum over columns of weight[row, col] * x[token, col].
//
// Weights are packed once into panels of 16 rows (panel.h). Quantised weights multiply activations of 8 bits, one f32 scale
// per 32 columns: the products of a block of 32 (16 where the weights' scales are per 16) are summed exactly in int32, and the
// blocks' results are added in f32 in block order. Few tokens wait for memory, not for multiplications: their activations are
// the sum of two such terms, the second of what the first left over. Float weights multiply f32 activations. Either way an
// output's bits depend on its row, its token, the number of terms and the instruction set only: not on the other tokens, the
// chunks, or the threads.
#pragma once
#include <cstdint>

#include "isa.h"

namespace cext {

struct PackedMatrix {  // one weight matrix [n_rows (out), n_cols (in)]; data owned by the caller, 64-byte aligned
  int32_t type;
  int64_t n_rows, n_cols;
  int64_t n_panels, panel_bytes;
  const uint8_t* data;
};

int64_t packed_panel_rows();
// Bytes of a packed matrix; negative where the type is no weight type or n_cols is no multiple of its block.
int64_t packed_bytes(int32_t type, int64_t n_rows, int64_t n_cols);
int packed_init(PackedMatrix* m, int32_t type, int64_t n_rows, int64_t n_cols, const uint8_t* data);
// Pack panels [panel0, panel1) into dst (== m->data) from the rows of the whole matrix as they lie in the file.
int pack_panels(const PackedMatrix* m, uint8_t* dst, const uint8_t* src_rows, int64_t panel0, int64_t panel1);
// One row as floats, out f32[n_cols]: exactly what the file's formula gives.
int unpack_row(const PackedMatrix* m, int64_t row, float* out);

enum ActKind : int { ACT_F32 = 0, ACT_Q8 = 1 };
// The activations that a weight type multiplies with.
ActKind act_kind_of(int32_t type);

// Activations [n_tokens, n_cols] as the sum of n_terms rows of 8 bits, which follow each other: a row is d q, d f32 per 32
// columns (the largest |x| / 127), q rounded to nearest even.
struct ActQ8 {
  int64_t n_tokens, n_cols;
  int64_t n_terms;   // rows of a token: 1 or 2
  int64_t ld_q;      // bytes from one row's q to the next's
  int64_t n_blocks;  // of 32 columns
  int8_t* q;         // [n_rows][ld_q]          n_rows = n_tokens n_terms
  float* d;          // [n_rows][n_blocks]
  float* s;          // [n_rows][n_blocks]      d times the block's sum of q
  float* s16;        // [n_rows][2 n_blocks]    d times the sum of each half of the block
  float* sum;        // [n_rows][n_blocks]      sum of q, a whole number
  float* sum16;      // [n_rows][2 n_blocks]    sum of q of each half
};
// Up to how many tokens of a micro batch are taken as the sum of two terms. With experts each expert sees a share of them only,
// and a small error may choose another expert.
constexpr int64_t TWO_TERM_TOKENS = 4, TWO_TERM_TOKENS_ROUTED = 64;
int64_t act_q8_bytes(int64_t n_rows, int64_t n_cols);
void act_q8_bind(ActQ8* act, void* mem /* 64-byte aligned */, int64_t n_tokens, int64_t n_cols, int64_t n_terms);

struct MatmulKernels {
  // Tokens [t0, t1) of x f32[n_tokens, ldx >= n_cols] into dst.
  void (*quantize_rows)(const float* x, int64_t ldx, const ActQ8* dst, int64_t t0, int64_t t1);
  // out[t * ld_out + row] for the rows of panels [panel0, panel1) and tokens [t0, t1); rows past n_rows are not written.
  // Row t of `act`, `x` and `out` is token t. scratch: matmul_scratch_bytes(n_cols), 64-byte aligned, one per thread.
  void (*mul_q8)(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
                 int64_t ld_out, void* scratch);
  void (*mul_f32)(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
                  float* out, int64_t ld_out, void* scratch);
};
const MatmulKernels& matmul_kernels();
const MatmulKernels& matmul_kernels_for(Isa isa);

int64_t matmul_scratch_bytes(int64_t n_cols);
// How many panels one task should take for speed: enough to amortise its start, few enough to share among the threads.
int64_t matmul_chunk_panels(const PackedMatrix* m, int64_t n_tokens, int n_threads);

}  // namespace cext
