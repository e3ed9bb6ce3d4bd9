// The loops that find this machine's limits.
#include "bench.h"
#include "intrinsics.h"

namespace cext {

uint64_t read_sum_avx512(const uint8_t* data, int64_t n_bytes) {
  __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (int64_t i = 0; i < n_bytes; i += 256) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sum[j] = _mm512_add_epi64(sum[j], _mm512_loadu_si512(data + i + 64 * j));
    _mm_prefetch((const char*)data + i + 4096, _MM_HINT_T1);
    _mm_prefetch((const char*)data + i + 4160, _MM_HINT_T1);
    _mm_prefetch((const char*)data + i + 4224, _MM_HINT_T1);
    _mm_prefetch((const char*)data + i + 4288, _MM_HINT_T1);
  }
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3])));
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] + lanes[6] + lanes[7];
}

int32_t multiply_registers_avx512(int64_t n_rounds) {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5), sum[16];
#pragma GCC unroll 16
  for (int j = 0; j < 16; ++j) sum[j] = _mm512_set1_epi32(j);  // distinct, or the compiler would keep one for all
  for (int64_t i = 0; i < n_rounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    __asm__ volatile("" : "+v"(a), "+v"(b));
  }
  for (int j = 1; j < 16; ++j) sum[0] = _mm512_add_epi32(sum[0], sum[j]);
  return _mm_cvtsi128_si32(_mm512_castsi512_si128(sum[0]));
}

}  // namespace cext
