// Which instruction set this process uses: the best the CPU has, or the one CEXT_ISA names.
#pragma once

namespace cext {

enum Isa : int { ISA_SCALAR = 0, ISA_AVX2 = 1, ISA_AVX512 = 2 };

// The best instruction set that this CPU and operating system can run.
Isa isa_best();
// The one in use: CEXT_ISA=scalar|avx2|avx512 where set and runnable, else isa_best(). Decided once.
Isa isa_in_use();
// Force one, for tests. Returns 0, or STATUS_BAD_ARGUMENT where this CPU cannot run it. Not while anything computes.
int isa_force(int isa);
const char* isa_name(int isa);

}  // namespace cext
