// The row kernels for AVX-512.
#include "simd_avx512.h"
// The vectors come first: rows_impl.h is written over them.
#include "rows_impl.h"

namespace cext {

extern const RowKernels kRowKernels_avx512 = kRowKernels;

}  // namespace cext
