// Normalise, then find the best path. Source: google/sentencepiece, src/unigram_model.cc, src/normalizer.cc.
#include "tokenizer_ugm.h"

#include <algorithm>
#include <cfloat>
#include <cstring>
#include <new>

#include "status.h"
#include "unicode.h"

namespace cext {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD
// Source: unigram_model.cc, kUnkPenalty.
constexpr double kUnknownPenalty = 10.0;

// The fields of a unit of the double array. Source: Darts-clone, darts.h, DoubleArrayUnit.
uint32_t unit_label(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool unit_has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t unit_value(uint32_t unit) { return unit & ((1u << 31) - 1); }
uint32_t unit_offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

int UgmTokenizer::build(const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
                        const uint8_t* charsmap, size_t n_charsmap, UgmOptions options, int32_t unknown) noexcept {
  try {
    options_ = options;
    unknown_ = unknown;
    vocab_.build(texts, types, scores, PIECE_SPACE_MARK);
    build_specials(strips);
    float lowest = FLT_MAX;
    for (int32_t id = 0; id < vocab_.n_tokens(); ++id) {
      const TokenType type = vocab_.type(id);
      if (type == TOKEN_NORMAL) lowest = std::min(lowest, vocab_.score(id));
      if (type != TOKEN_NORMAL && type != TOKEN_USER_DEFINED && type != TOKEN_UNUSED) continue;
      const char* text = vocab_.texts().text(static_cast<size_t>(id));
      const size_t size = vocab_.texts().size(static_cast<size_t>(id));
      tokens_.add(text, size, id);
      if (type == TOKEN_USER_DEFINED) user_defined_.add(text, size, id);
    }
    unknown_score_ = (lowest == FLT_MAX ? 0.0 : static_cast<double>(lowest)) - kUnknownPenalty;
    if (!charsmap) return STATUS_OK;
    uint32_t n_bytes;
    if (n_charsmap < sizeof(n_bytes)) return STATUS_BAD_DATA;
    std::memcpy(&n_bytes, charsmap, sizeof(n_bytes));
    if (n_bytes % 4 != 0 || n_bytes > n_charsmap - 4) return STATUS_BAD_DATA;
    units_.resize(n_bytes / 4);
    std::memcpy(units_.data(), charsmap + 4, n_bytes);
    replacements_.assign(charsmap + 4 + n_bytes, charsmap + n_charsmap);
    if (replacements_.empty() || replacements_.back() != 0) return STATUS_BAD_DATA;
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

// What the text at pos becomes, and how many of its bytes that stands for.
UgmTokenizer::Normalized UgmTokenizer::normalize_at(const char* text, size_t pos, size_t n) const {
  size_t behind = pos;
  if (user_defined_.longest(text, pos, n, &behind) != ByteTrie::kNone) return {text + pos, behind - pos, behind - pos};
  // The longest entry that the text starts with. Reads past the array give 0, which is the label of no byte.
  size_t found = SIZE_MAX;
  uint32_t node = unit_offset(unit(0));
  for (size_t at = pos; at < n && text[at] != 0; ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    node ^= byte;
    const uint32_t here = unit(node);
    if (unit_label(here) != byte) break;
    node ^= unit_offset(here);
    if (unit_has_leaf(here)) {
      found = unit_value(unit(node));
      behind = at + 1;
    }
  }
  if (found < replacements_.size()) {
    const char* replacement = replacements_.data() + found;
    return {replacement, std::strlen(replacement), behind - pos};
  }
  size_t length;
  const uint32_t c = decode_utf8(text, pos, n, &length);
  if (c == 0xFFFD && length == 1) return {kReplacement, 3, 1};
  return {text + pos, length, length};
}

std::vector<char> UgmTokenizer::normalize(const char* text, size_t n) const {
  std::vector<char> out;
  out.reserve(n + n / 2 + 3);
  bool has_prefix = false, in_word = false;
  for (size_t pos = 0; pos < n;) {
    const Normalized part = normalize_at(text, pos, n);
    for (size_t i = 0; i < part.size; ++i) {
      if (part.text[i] == ' ') {
        in_word = false;
        if (!options_.remove_extra_whitespaces) out.insert(out.end(), kSpaceMark, kSpaceMark + 3);
        continue;
      }
      if (!in_word) {
        in_word = true;
        if (options_.remove_extra_whitespaces || (options_.add_space_prefix && !has_prefix)) {
          out.insert(out.end(), kSpaceMark, kSpaceMark + 3);
          has_prefix = true;
        }
      }
      out.push_back(part.text[i]);
    }
    pos += part.n_read;
  }
  return out;
}

void UgmTokenizer::encode_text(const char* text, size_t n, bool, std::vector<int32_t>& out) const {
  struct Best {
    double score;
    size_t start;
    int32_t id;
  };
  const std::vector<char> normalized = normalize(text, n);
  const char* all = normalized.data();
  const size_t end = normalized.size();
  if (end == 0) return;
  std::vector<Best> best(end + 1, Best{-DBL_MAX, 0, unknown_});
  best[0].score = 0;
  const auto offer = [&best](size_t start, size_t behind, double score, int32_t id) {
    if (best[start].score + score > best[behind].score) best[behind] = {best[start].score + score, start, id};
  };
  for (size_t start = 0; start < end;) {
    size_t length;
    decode_utf8(all, start, end, &length);
    bool has_character = false;
    int32_t node = ByteTrie::kRoot;
    for (size_t at = start; at < end; ++at) {
      node = tokens_.step(node, static_cast<uint8_t>(all[at]));
      if (node == ByteTrie::kNone) break;
      const int32_t id = tokens_.value(node);
      if (id == ByteTrie::kNone) continue;
      has_character |= at + 1 - start == length;
      offer(start, at + 1, vocab_.type(id) == TOKEN_USER_DEFINED ? 0.0 : static_cast<double>(vocab_.score(id)), id);
    }
    if (!has_character) offer(start, start + length, unknown_score_, unknown_);
    start += length;
  }
  // Back from the end; unknown tokens that follow each other are one.
  const size_t n_before = out.size();
  bool was_unknown = false;
  for (size_t at = end; at > 0; at = best[at].start) {
    const bool is_unknown = best[at].id == unknown_;
    if (!(is_unknown && was_unknown)) out.push_back(best[at].id);
    was_unknown = is_unknown;
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(n_before), out.end());
}

}  // namespace cext
