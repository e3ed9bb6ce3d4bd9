// The products of float weights with AVX2.
#include "simd_avx2.h"

#include "matmul_f32_tile.h"

namespace cext {

void mul_f32_avx2(const PackedMatrix* m, int64_t panel0, int64_t panel1, const float* x, int64_t ldx, int64_t t0, int64_t t1,
                float* out, int64_t ld_out, void* scratch) {
  mul_f32(m, panel0, panel1, x, ldx, t0, t1, out, ld_out, scratch);
}

}  // namespace cext
