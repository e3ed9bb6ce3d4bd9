// The recurrences for AVX-512.
#include "simd_avx512.h"
// The vectors come first: recurrent_impl.h is written over them.
#include "recurrent_impl.h"

namespace cext {

extern const RecurrentKernels kRecurrentKernels_avx512 = kRecurrentKernels;

}  // namespace cext
