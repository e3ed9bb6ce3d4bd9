// Unicode for the tokenizers: UTF-8 in and out, general categories, white space.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cext {

// General categories, in alphabetical order behind "not assigned". Source: Unicode Standard, table 4-4.
enum Category : uint8_t {
  CAT_CN, CAT_CC, CAT_CF, CAT_CO, CAT_CS, CAT_LL, CAT_LM, CAT_LO, CAT_LT, CAT_LU, CAT_MC, CAT_ME, CAT_MN, CAT_ND, CAT_NL,
  CAT_NO, CAT_PC, CAT_PD, CAT_PE, CAT_PF, CAT_PI, CAT_PO, CAT_PS, CAT_SC, CAT_SK, CAT_SM, CAT_SO, CAT_ZL, CAT_ZP, CAT_ZS,
  CAT_COUNT
};

extern const char* const kUnicodeVersion;
extern const int32_t kCategoryRunCount;
extern const uint32_t kCategoryRuns[];  // [kCategoryRunCount], first code point << 5 | category

constexpr uint32_t kSpaceBit = 31;  // stands beside the categories in a class's mask

// uint8[0x110000], the category of each code point; made at the first call.
const uint8_t* category_table();

// The property White_Space. Source: Unicode Standard, PropList.txt.
inline bool is_white_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// The code point at text[pos] and its length in bytes; a byte that starts no valid sequence is U+FFFD of length 1.
inline uint32_t decode_utf8(const char* text, size_t pos, size_t end, size_t* length) {
  const auto* s = reinterpret_cast<const uint8_t*>(text) + pos;
  const size_t left = end - pos;
  const uint32_t a = s[0];
  *length = 1;
  if (a < 0x80) return a;
  const auto tail = [s](size_t i) { return (s[i] & 0xC0) == 0x80; };
  if (a >= 0xC2 && a < 0xE0 && left >= 2 && tail(1)) {
    *length = 2;
    return (a & 0x1F) << 6 | (s[1] & 0x3Fu);
  }
  if (a >= 0xE0 && a < 0xF0 && left >= 3 && tail(1) && tail(2)) {
    const uint32_t c = (a & 0x0F) << 12 | (s[1] & 0x3Fu) << 6 | (s[2] & 0x3Fu);
    if (c >= 0x800) {
      *length = 3;
      return c;
    }
  }
  if (a >= 0xF0 && a < 0xF5 && left >= 4 && tail(1) && tail(2) && tail(3)) {
    const uint32_t c = (a & 0x07) << 18 | (s[1] & 0x3Fu) << 12 | (s[2] & 0x3Fu) << 6 | (s[3] & 0x3Fu);
    if (c >= 0x10000 && c < 0x110000) {
      *length = 4;
      return c;
    }
  }
  return 0xFFFD;
}

// Where the character before text[pos] starts; pos > begin. Undoes a step of decode_utf8 on valid text.
inline size_t step_back(const char* text, size_t begin, size_t pos) {
  size_t at = pos - 1;
  while (at > begin && pos - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Write code point c < 0x110000 to out[4]; returns its length in bytes.
inline size_t encode_utf8(uint32_t c, char* out) {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  if (c < 0x800) {
    out[0] = static_cast<char>(0xC0 | c >> 6);
    out[1] = static_cast<char>(0x80 | (c & 0x3F));
    return 2;
  }
  if (c < 0x10000) {
    out[0] = static_cast<char>(0xE0 | c >> 12);
    out[1] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out[2] = static_cast<char>(0x80 | (c & 0x3F));
    return 3;
  }
  out[0] = static_cast<char>(0xF0 | c >> 18);
  out[1] = static_cast<char>(0x80 | (c >> 12 & 0x3F));
  out[2] = static_cast<char>(0x80 | (c >> 6 & 0x3F));
  out[3] = static_cast<char>(0x80 | (c & 0x3F));
  return 4;
}

}  // namespace cext
