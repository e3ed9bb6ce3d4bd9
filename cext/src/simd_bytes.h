// Blocks of 32 small numbers to bytes, for x86 with AVX2: the same names as simd_scalar.h, which says what each does.
#pragma once
#include <cstdint>
#include <cstring>

#include "intrinsics.h"

namespace cext {
namespace {

inline void split_nibbles(const uint8_t* qs, int8_t* q) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(qs)), low = _mm_set1_epi8(15);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q), _mm_and_si128(bytes, low));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
}

inline void add_fifth_bits(const uint8_t* qh, int8_t* q) {
  int32_t bits;
  std::memcpy(&bits, qh, sizeof bits);
  // Byte j gets the byte of qh that holds its bit, then that bit alone.
  const __m256i place = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), place);
  const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  const __m256i old = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  const __m256i sum = _mm256_or_si256(old, _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), sum);
}

inline void look_up(const int8_t* table, int8_t* q) {
  const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_shuffle_epi8(t, at));
}

}  // namespace
}  // namespace cext
