// The recurrences for AVX2.
#include "simd_avx2.h"
// The vectors come first: recurrent_impl.h is written over them.
#include "recurrent_impl.h"

namespace cext {

extern const RecurrentKernels kRecurrentKernels_avx2 = kRecurrentKernels;

}  // namespace cext
