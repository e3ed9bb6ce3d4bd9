#include "gguf_scan.h"

#include <cstring>

namespace cext {

int64_t scan_strings(const uint8_t* data, int64_t begin, int64_t end, int64_t n, uint64_t* offsets, uint64_t* lengths) {
  int64_t position = begin;
  for (int64_t i = 0; i < n; ++i) {
    uint64_t length;
    if (end - position < (int64_t)sizeof length) return -1 - i;
    std::memcpy(&length, data + position, sizeof length);
    position += (int64_t)sizeof length;
    if (length > (uint64_t)(end - position)) return -1 - i;
    offsets[i] = (uint64_t)(position - begin);
    lengths[i] = length;
    position += (int64_t)length;
  }
  return position;
}

}  // namespace cext
