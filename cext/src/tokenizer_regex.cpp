// Match a parsed pattern: greedy, first alternative first, with steps back only inside a run of one class.
#include "tokenizer_regex.h"

#include "unicode.h"

namespace cext {

bool CharClass::has(uint32_t c, const uint8_t* category) const {
  if (c < 128) return ascii[c >> 6] >> (c & 63) & 1;
  bool is = (categories >> category[c] & 1) || ((categories >> kSpaceBit & 1) && is_white_space(c));
  for (size_t i = 0; !is && i < ranges.size(); i += 2) is = c >= ranges[i] && c <= ranges[i + 1];
  return is != negated && (!also || also->has(c, category));
}

namespace {

// Take at most `max` characters of the class; *count is how many were taken.
size_t take_run(const CharClass& set, const uint8_t* category, uint32_t max, const char* text, size_t pos, size_t end,
                uint32_t* count) {
  uint32_t n = 0;
  while (n < max && pos < end) {
    const auto byte = static_cast<uint8_t>(text[pos]);
    if (byte < 128) {
      if (!(set.ascii[byte >> 6] >> (byte & 63) & 1)) break;
      ++pos;
    } else {
      size_t length;
      if (!set.has(decode_utf8(text, pos, end, &length), category)) break;
      pos += length;
    }
    ++n;
  }
  *count = n;
  return pos;
}

}  // namespace

size_t Regex::match_class(const RegexSequence& sequence, size_t i, const char* text, size_t pos, size_t end) const {
  const RegexNode& node = sequence[i];
  uint32_t count;
  size_t at = take_run(node.set, category_, node.max, text, pos, end, &count);
  if (count < node.min) return kNone;
  if (i + 1 == sequence.size()) return at;
  while (true) {
    const size_t done = match_from(sequence, i + 1, text, at, end);
    if (done != kNone || count == node.min || node.possessive) return done;
    at = step_back(text, pos, at);
    --count;
  }
}

size_t Regex::match_any(const std::vector<RegexSequence>& alternatives, const char* text, size_t pos,
                        size_t end) const {
  for (const RegexSequence& sequence : alternatives) {
    const size_t done = match_from(sequence, 0, text, pos, end);
    if (done != kNone) return done;
  }
  return kNone;
}

size_t Regex::match_from(const RegexSequence& sequence, size_t i, const char* text, size_t pos, size_t end) const {
  for (; i < sequence.size(); ++i) {
    const RegexNode& node = sequence[i];
    switch (node.kind) {
      case RegexNode::CLASS:
        return match_class(sequence, i, text, pos, end);
      case RegexNode::GROUP:
        for (uint32_t n = 0; n < node.max; ++n) {
          const size_t done = match_any(node.alternatives, text, pos, end);
          if (done == kNone || done == pos) {
            if (done == kNone && n < node.min) return kNone;
            break;
          }
          pos = done;
        }
        break;
      case RegexNode::LOOK_AHEAD:
        if (match_any(node.alternatives, text, pos, end) == kNone) return kNone;
        break;
      case RegexNode::NOT_AHEAD:
        if (match_any(node.alternatives, text, pos, end) != kNone) return kNone;
        break;
      case RegexNode::TEXT_END:
        if (pos != end) return kNone;
        break;
    }
  }
  return pos;
}

size_t Regex::match(const char* text, size_t pos, size_t end, size_t* skip) const {
  const auto byte = static_cast<uint8_t>(text[pos]);
  const uint64_t maybe = first_[byte < 128 ? byte : 128];
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    if (!(maybe >> i & 1)) continue;
    const size_t done = match_from(alternatives_[i], 0, text, pos, end);
    if (done != kNone && done != pos) return done;
  }
  size_t length;
  decode_utf8(text, pos, end, &length);
  *skip = pos + length;
  if (alternatives_.size() == 1 && !alternatives_[0].empty()) {
    // A lone pattern that begins with an endless run and failed here fails anywhere later in the same run, too:
    // whatever its rest could follow there was tried from here. Without this, `\s+$` would take quadratic time.
    const RegexNode& first = alternatives_[0][0];
    if (first.kind == RegexNode::CLASS && first.max == UINT32_MAX && first.min <= 1) {
      uint32_t count;
      const size_t run = take_run(first.set, category_, UINT32_MAX, text, pos, end, &count);
      if (run > *skip) *skip = run;
    }
  }
  return kNone;
}

}  // namespace cext
