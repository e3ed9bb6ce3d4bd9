// The vector intrinsics of x86, for files compiled for an instruction set of their own.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// WORKAROUND(gcc 12): its own intrinsics start from undefined vectors and warn of it; remove when gcc 13 is the oldest.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#if defined(_MSC_VER)
#define CEXT_INLINE static __forceinline
#else
#define CEXT_INLINE static inline __attribute__((always_inline))
#endif
