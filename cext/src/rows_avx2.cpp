// The row kernels for AVX2.
#include "simd_avx2.h"
// The vectors come first: rows_impl.h is written over them.
#include "rows_impl.h"

namespace cext {

extern const RowKernels kRowKernels_avx2 = kRowKernels;

}  // namespace cext
