// The codebooks of the IQ1, IQ2 and IQ3 types: an index stands for eight (or four) magnitudes, the first in the low byte.
// Source: gguf/quants.py (IQ2_XXS.grid_hex and its fellows); the numbers are part of the file format.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cext {

template <typename Entry, size_t N>
struct IQGrid {
  Entry entry[N];
};

extern const IQGrid<uint64_t, 256> iq2xxs_grid;  // eight of {8, 25, 43}
extern const IQGrid<uint64_t, 512> iq2xs_grid;
extern const IQGrid<uint64_t, 1024> iq2s_grid;
extern const IQGrid<uint64_t, 2048> iq1s_grid;  // eight of {-1, 0, 1} as int8; IQ1_M has the same
extern const IQGrid<uint32_t, 256> iq3xxs_grid;  // four of {4, 12, 20, 28, 36, 44, 52, 62}
extern const IQGrid<uint32_t, 512> iq3s_grid;    // four of {1, 3, ..., 15}

// The eight signs (bit set: negative) behind an index of 7 bits: the index itself, and an eighth that makes the number of
// negative signs even.
static inline uint8_t iq_signs(uint32_t index) {
  uint32_t parity = index & 127u;
  parity ^= parity >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return (uint8_t)((index & 127u) | (parity & 1u) << 7);
}

}  // namespace cext
