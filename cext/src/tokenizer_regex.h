// The part of regular expressions that pre-tokenizers use, over UTF-8 text, in time linear in the text.
//
// Understood: literals, escapes, \s \S \d, \p{..} of general categories, classes with ranges, negation and `&&[..]`,
// groups (?:..) (?i:..) (..), alternatives, ? * + {n} {n,m} and their possessive forms, (?=..) (?!..) and $.
// A group is atomic: its first alternative that matches is kept; a repeated group takes all it can. The patterns of
// engine/tokenizer/pretokenizers.py mean the same either way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cext {

struct CharClass {
  uint64_t ascii[2] = {0, 0};        // the final answer for code points below 128
  uint32_t categories = 0;           // bit per Category, and kSpaceBit
  std::vector<uint32_t> ranges;      // [2 * n], first and last code point
  bool negated = false;
  std::unique_ptr<CharClass> also;   // `&&`: must hold too

  bool has(uint32_t c, const uint8_t* category) const;
};

struct RegexNode;
using RegexSequence = std::vector<RegexNode>;

struct RegexNode {
  enum Kind : uint8_t { CLASS, GROUP, LOOK_AHEAD, NOT_AHEAD, TEXT_END } kind = CLASS;
  bool possessive = false;
  uint32_t min = 1, max = 1;                // of CLASS and GROUP
  CharClass set;                            // of CLASS
  std::vector<RegexSequence> alternatives;  // of GROUP and the look-aheads
};

class Regex {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  // Returns 0, or STATUS_BAD_ARGUMENT where the pattern holds something that is not understood.
  int parse(const char* pattern, size_t n_bytes);

  // The end of the match that starts at text[pos], or kNone. The text lies in [begin, end): nothing outside is seen.
  // Where nothing matches, *skip is the next position at which something may.
  size_t match(const char* text, size_t pos, size_t end, size_t* skip) const;

 private:
  friend class RegexParser;
  size_t match_from(const RegexSequence& sequence, size_t i, const char* text, size_t pos, size_t end) const;
  size_t match_class(const RegexSequence& sequence, size_t i, const char* text, size_t pos, size_t end) const;
  size_t match_any(const std::vector<RegexSequence>& alternatives, const char* text, size_t pos, size_t end) const;
  void index_first();

  std::vector<RegexSequence> alternatives_;
  uint64_t first_[129] = {};  // [byte, or 128 for a longer sequence]: bit per alternative that may start there
  const uint8_t* category_ = nullptr;
};

}  // namespace cext
