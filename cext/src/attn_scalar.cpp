// Attention for any CPU.
#include "simd_scalar.h"
// The vectors come first: attn_impl.h is written over them.
#include "attn_impl.h"

namespace cext {

extern const AttnKernels kAttnKernels_scalar = kAttnKernels;

}  // namespace cext
