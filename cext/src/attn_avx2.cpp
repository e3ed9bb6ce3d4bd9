// Attention for AVX2.
#include "simd_avx2.h"
// The vectors come first: attn_impl.h is written over them.
#include "attn_impl.h"

namespace cext {

extern const AttnKernels kAttnKernels_avx2 = kAttnKernels;

}  // namespace cext
