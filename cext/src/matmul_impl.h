// What the instruction sets' versions of the products share: sizes of the scratch and the table of each.
#pragma once
#include "matmul.h"
#include "panel.h"

namespace cext {

// Columns that a strip of panels is unpacked for at a time: a strip, its scales and a tile of tokens stay in the L1 cache.
constexpr int STRIP_COLS = 768;
constexpr int STRIP_BLOCKS = STRIP_COLS / BLOCK_COLS;
constexpr int STRIP_PANELS = 2;

// Blocks of each strip of a row of n_blocks: as even as whole scale records (of 256 columns, where it has such) allow.
static inline int64_t strip_blocks(int64_t n_blocks, int record_blocks) {
  const int64_t n_strips = (n_blocks + STRIP_BLOCKS - 1) / STRIP_BLOCKS;
  const int64_t blocks = (n_blocks + n_strips - 1) / n_strips;
  return (blocks + record_blocks - 1) / record_blocks * record_blocks;
}

// Per thread: two panels' unpacked columns (as f32 for the row panels), their scales, and a tile's sums.
constexpr int64_t SCRATCH_WEIGHTS = STRIP_PANELS * STRIP_COLS * PANEL_ROWS_N * 4;
constexpr int64_t SCRATCH_SCALES = STRIP_PANELS * STRIP_BLOCKS * 2 * 3 * QUAD_BYTES;

// NUMERICS: int32 sums start at the bits of the f32 1.5 * 2^23, so that the finished sum read as f32 is 1.5 * 2^23 + dot, exactly
// (|dot| < 2^22). fma(that, d, -1.5 * 2^23 * d) is then dot * d, rounded once: -1.5 * 2^23 * d is exact, for d has at most
// 18 significant bits (a half float times a scale of 7 bits).
constexpr float MAGIC = 12582912.0f;

// How far ahead of the multiplication weights are fetched into L2 (memory's latency at its full speed) and into L1.
constexpr int64_t AHEAD_BYTES = 16384;
constexpr int64_t NEAR_BYTES = 2048;

extern const MatmulKernels MATMUL_SCALAR;
#if defined(__x86_64__) || defined(_M_X64)
extern const MatmulKernels MATMUL_AVX2;
extern const MatmulKernels MATMUL_AVX512;
void mul_f32_avx2(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
                float* out, int64_t ld_out, void* scratch);
void mul_f32_avx512(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
                float* out, int64_t ld_out, void* scratch);
#endif

}  // namespace cext
