// The recurrences for any CPU.
#include "simd_scalar.h"
// The vectors come first: recurrent_impl.h is written over them.
#include "recurrent_impl.h"

namespace cext {

extern const RecurrentKernels kRecurrentKernels_scalar = kRecurrentKernels;

}  // namespace cext
