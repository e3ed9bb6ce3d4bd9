// Chooses the row kernels of the instruction set in use.
#include "rows.h"

#include "isa.h"

namespace cext {

extern const RowKernels kRowKernels_scalar;
#if defined(__x86_64__) || defined(_M_X64)
extern const RowKernels kRowKernels_avx2, kRowKernels_avx512;
#endif

const RowKernels& row_kernels_for(int isa) {
#if defined(__x86_64__) || defined(_M_X64)
  if (isa == ISA_AVX512 && isa_best() >= ISA_AVX512) return kRowKernels_avx512;
  if (isa >= ISA_AVX2 && isa_best() >= ISA_AVX2) return kRowKernels_avx2;
#endif
  return kRowKernels_scalar;
}

const RowKernels& row_kernels() { return row_kernels_for(isa_in_use()); }

}  // namespace cext
