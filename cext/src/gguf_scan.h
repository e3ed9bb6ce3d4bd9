// Walk the length-prefixed strings of a GGUF array, for vocabularies of a quarter of a million tokens.
#pragma once
#include <cstdint>

namespace cext {

// Strings 0..n of an array that starts at data[begin] and must end by data[end]: each a 64-bit little-endian length and
// that many bytes. offsets[i] is where string i's bytes start, counted from begin.
// Returns the position behind the last, or -1 - i where string i does not lie within the data.
int64_t scan_strings(const uint8_t* data, int64_t begin, int64_t end, int64_t n, uint64_t* offsets, uint64_t* lengths);

}  // namespace cext
