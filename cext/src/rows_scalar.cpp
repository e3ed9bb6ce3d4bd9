// The row kernels for any CPU.
#include "simd_scalar.h"
// The vectors come first: rows_impl.h is written over them.
#include "rows_impl.h"

namespace cext {

extern const RowKernels kRowKernels_scalar = kRowKernels;

}  // namespace cext
