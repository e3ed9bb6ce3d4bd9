// The category of every code point, laid out flat from the runs of unicode_categories.cpp.
#include "unicode.h"

#include <cstring>
#include <memory>

namespace cext {

namespace {

constexpr size_t kCodePoints = 0x110000;

std::unique_ptr<uint8_t[]> make_category_table() {
  auto table = std::make_unique<uint8_t[]>(kCodePoints);
  for (int32_t i = 0; i < kCategoryRunCount; ++i) {
    const size_t first = kCategoryRuns[i] >> 5;
    const size_t behind = i + 1 < kCategoryRunCount ? kCategoryRuns[i + 1] >> 5 : kCodePoints;
    std::memset(table.get() + first, static_cast<int>(kCategoryRuns[i] & 31), behind - first);
  }
  return table;
}

}  // namespace

const uint8_t* category_table() {
  static const std::unique_ptr<uint8_t[]> table = make_category_table();
  return table.get();
}

}  // namespace cext
