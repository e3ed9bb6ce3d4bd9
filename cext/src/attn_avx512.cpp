// Attention for AVX-512.
#include "simd_avx512.h"
// The vectors come first: attn_impl.h is written over them.
#include "attn_impl.h"

namespace cext {

extern const AttnKernels kAttnKernels_avx512 = kAttnKernels;

}  // namespace cext
