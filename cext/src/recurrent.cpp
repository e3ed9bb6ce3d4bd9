// Sizes of recurrences, and the choice of their kernels by the instruction set in use.
#include "recurrent.h"

#include "isa.h"

namespace cext {

extern const RecurrentKernels kRecurrentKernels_scalar;
#if defined(__x86_64__) || defined(_M_X64)
extern const RecurrentKernels kRecurrentKernels_avx2, kRecurrentKernels_avx512;
#endif

const RecurrentKernels& recurrent_kernels() {
#if defined(__x86_64__) || defined(_M_X64)
  if (isa_in_use() == ISA_AVX512) return kRecurrentKernels_avx512;
  if (isa_in_use() == ISA_AVX2) return kRecurrentKernels_avx2;
#endif
  return kRecurrentKernels_scalar;
}

int recurrent_n_inputs(int32_t kind) {
  constexpr int N[N_RECURRENT] = {1, 1, 4, 5, 4, 6};
  return kind < 0 || kind >= N_RECURRENT ? 0 : N[kind];
}

int64_t recurrent_state_values(const RecurrentParams* p) {
  if (p->kind == RECURRENT_CONV || p->kind == RECURRENT_SHIFT) return p->n_head * (p->d_k - 1);
  return p->n_head * p->d_k * p->d_v;
}

int64_t recurrent_scratch_bytes(const RecurrentParams* p) {
  return static_cast<int64_t>(sizeof(float)) * ((p->d_k > p->d_v ? p->d_k : p->d_v) + 64);  // a row, and a step for each head of a task
}

}  // namespace cext
