// Asks the CPU what it can run. AVX-512 here means F, BW, DQ, VL, VNNI, BF16 and VBMI together (Zen 4, Ice Lake server +
// BF16: Sapphire Rapids); a CPU with less uses AVX2.
#include "isa.h"

#include <cstdlib>
#include <cstring>

#include "status.h"

#if defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#include <intrin.h>
#endif

namespace cext {
namespace {

Isa detect() {
#if (defined(__x86_64__) || defined(__i386__)) && (defined(__GNUC__) || defined(__clang__))
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
                      __builtin_cpu_supports("avx512vbmi");
  return avx512 ? ISA_AVX512 : avx2 ? ISA_AVX2 : ISA_SCALAR;
#elif defined(_MSC_VER) && defined(_M_X64)
  int r[4];
  __cpuidex(r, 1, 0);
  const bool osxsave = (r[2] >> 27) & 1, fma = (r[2] >> 12) & 1, f16c = (r[2] >> 29) & 1;
  if (!osxsave || !fma || !f16c || (_xgetbv(0) & 6) != 6) return ISA_SCALAR;
  __cpuidex(r, 7, 0);
  return ((r[1] >> 5) & 1) ? ISA_AVX2 : ISA_SCALAR;
#else
  return ISA_SCALAR;
#endif
}

int in_use = -1;

}  // namespace

Isa isa_best() {
  static const Isa best = detect();
  return best;
}

Isa isa_in_use() {
  if (in_use < 0) {
    const char* asked = std::getenv("CEXT_ISA");
    in_use = isa_best();
    for (int isa = ISA_SCALAR; asked && isa <= isa_best(); ++isa)
      if (std::strcmp(asked, isa_name(isa)) == 0) in_use = isa;
  }
  return static_cast<Isa>(in_use);
}

int isa_force(int isa) {
  if (isa < ISA_SCALAR || isa > isa_best()) return STATUS_BAD_ARGUMENT;
  in_use = isa;
  return STATUS_OK;
}

const char* isa_name(int isa) {
  return isa == ISA_AVX512 ? "avx512" : isa == ISA_AVX2 ? "avx2" : "scalar";
}

}  // namespace cext
