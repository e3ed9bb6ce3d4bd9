// Parse a pre-tokenizer's pattern into the nodes that tokenizer_regex.cpp walks.
#include <cstring>

#include "status.h"
#include "tokenizer_regex.h"
#include "unicode.h"

namespace cext {

namespace {

const char* const kCategoryNames[] = {"Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu",
                                      "Mc", "Me", "Mn", "Nd", "Nl", "No", "Pc", "Pd", "Pe", "Pf",
                                      "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"};
static_assert(sizeof(kCategoryNames) / sizeof(*kCategoryNames) == CAT_COUNT, "a name per category");

// The categories whose name starts with the given one or two letters.
uint32_t categories_named(const char* name, size_t n) {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < CAT_COUNT; ++i) {
    if (n >= 1 && n <= 2 && std::strncmp(kCategoryNames[i], name, n) == 0) mask |= 1u << i;
  }
  return mask;
}

bool in_raw_class(const CharClass& set, uint32_t c) {
  if (set.categories >> category_table()[c] & 1) return true;
  if ((set.categories >> kSpaceBit & 1) && is_white_space(c)) return true;
  for (size_t i = 0; i < set.ranges.size(); i += 2) {
    if (c >= set.ranges[i] && c <= set.ranges[i + 1]) return true;
  }
  return false;
}

// Fill the table of ASCII answers once all parts of the class are known.
void finish_class(CharClass& set) {
  for (uint32_t c = 0; c < 128; ++c) {
    bool is = in_raw_class(set, c) != set.negated;
    if (set.also && !(set.also->ascii[c >> 6] >> (c & 63) & 1)) is = false;
    if (is) set.ascii[c >> 6] |= uint64_t{1} << (c & 63);
  }
}

}  // namespace

class RegexParser {
 public:
  RegexParser(const char* text, size_t n) : text_(text), end_(n) {}

  bool parse_all(std::vector<RegexSequence>& out) { return parse_alternatives(out, 0) && at_ == end_; }

 private:
  static constexpr int kMaxDepth = 8;

  bool more() const { return at_ < end_; }
  bool next_is(const char* what) const {
    const size_t n = std::strlen(what);
    return end_ - at_ >= n && std::memcmp(text_ + at_, what, n) == 0;
  }
  bool take(const char* what) {
    if (!next_is(what)) return false;
    at_ += std::strlen(what);
    return true;
  }
  uint32_t take_char() {
    size_t length;
    const uint32_t c = decode_utf8(text_, at_, end_, &length);
    at_ += length;
    return c;
  }

  bool parse_alternatives(std::vector<RegexSequence>& out, int depth) {
    if (depth > kMaxDepth) return false;
    do {
      out.emplace_back();
      while (more() && !next_is("|") && !next_is(")")) {
        if (!parse_node(out.back(), depth)) return false;
      }
    } while (take("|"));
    return true;
  }

  bool parse_node(RegexSequence& sequence, int depth) {
    RegexNode node;
    if (take("$")) {
      node.kind = RegexNode::TEXT_END;
    } else if (next_is("(")) {
      if (!parse_group(node, depth)) return false;
    } else if (take("[")) {
      if (!parse_class(node.set, depth)) return false;
    } else {
      if (next_is("*") || next_is("+") || next_is("?") || next_is("{")) return false;
      if (!parse_item(node.set, false)) return false;
      finish_class(node.set);
    }
    if (!parse_count(node)) return false;
    sequence.push_back(std::move(node));
    return true;
  }

  bool parse_group(RegexNode& node, int depth) {
    const bool outer = ignore_case_;
    node.kind = RegexNode::GROUP;
    if (take("(?i:")) {
      ignore_case_ = true;
    } else if (take("(?=")) {
      node.kind = RegexNode::LOOK_AHEAD;
    } else if (take("(?!")) {
      node.kind = RegexNode::NOT_AHEAD;
    } else if (!take("(?:")) {
      take("(");
      if (next_is("?")) return false;
    }
    const bool is_good = parse_alternatives(node.alternatives, depth + 1) && take(")");
    ignore_case_ = outer;
    return is_good;
  }

  // What follows '[': the class up to its ']'.
  bool parse_class(CharClass& set, int depth) {
    if (depth > kMaxDepth) return false;
    set.negated = take("^");
    while (!take("]")) {
      if (!more()) return false;
      if (take("&&[")) {
        set.also = std::make_unique<CharClass>();
        if (!parse_class(*set.also, depth + 1)) return false;
        continue;
      }
      const size_t n_ranges = set.ranges.size();
      if (!parse_item(set, true)) return false;
      const bool is_single = set.ranges.size() == n_ranges + 2;
      if (is_single && next_is("-") && at_ + 1 < end_ && text_[at_ + 1] != ']') {
        take("-");
        CharClass last;
        if (!parse_item(last, true) || last.ranges.size() != 2) return false;
        set.ranges[n_ranges + 1] = last.ranges[0];
        if (set.ranges[n_ranges] > set.ranges[n_ranges + 1]) return false;
      }
    }
    finish_class(set);
    return true;
  }

  // One character or escape, added to the class.
  bool parse_item(CharClass& set, bool in_class) {
    if (!take("\\")) {
      add_char(set, take_char());
      return true;
    }
    if (!more()) return false;
    const uint32_t c = take_char();
    switch (c) {
      case 'n': add_char(set, '\n'); return true;
      case 'r': add_char(set, '\r'); return true;
      case 't': add_char(set, '\t'); return true;
      case 'd': set.categories |= 1u << CAT_ND; return true;
      case 's': set.categories |= 1u << kSpaceBit; return true;
      case 'S':
        if (in_class) return false;
        set.categories |= 1u << kSpaceBit;
        set.negated = true;
        return true;
      case 'p': return parse_property(set);
      default: break;
    }
    if (c >= 128 || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return false;
    add_char(set, c);
    return true;
  }

  bool parse_property(CharClass& set) {
    if (!take("{")) return false;
    const size_t start = at_;
    while (more() && text_[at_] != '}') ++at_;
    const uint32_t mask = categories_named(text_ + start, at_ - start);
    set.categories |= mask;
    return take("}") && mask != 0;
  }

  void add_char(CharClass& set, uint32_t c) {
    set.ranges.insert(set.ranges.end(), {c, c});
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!ignore_case_ || !is_letter) return;
    set.ranges.insert(set.ranges.end(), {c ^ 32, c ^ 32});
    // Letters beyond ASCII that fold to one of it. Source: Unicode 15.1 CaseFolding.txt, status C.
    if ((c | 32) == 's') set.ranges.insert(set.ranges.end(), {0x17F, 0x17F});   // LATIN SMALL LETTER LONG S
    if ((c | 32) == 'k') set.ranges.insert(set.ranges.end(), {0x212A, 0x212A});  // KELVIN SIGN
  }

  bool parse_count(RegexNode& node) {
    const bool can_repeat = node.kind == RegexNode::CLASS || node.kind == RegexNode::GROUP;
    if (take("?")) {
      node.min = 0;
    } else if (take("*")) {
      node.min = 0;
      node.max = UINT32_MAX;
    } else if (take("+")) {
      node.max = UINT32_MAX;
    } else if (take("{")) {
      node.min = node.max = parse_number();
      if (take(",")) node.max = next_is("}") ? UINT32_MAX : parse_number();
      if (!take("}") || node.max == 0 || node.min > node.max) return false;
    } else {
      return true;
    }
    node.possessive = take("+");
    return can_repeat && !next_is("?");
  }

  uint32_t parse_number() {
    uint32_t value = 0;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9' && value < 100000) {
      value = value * 10 + static_cast<uint32_t>(text_[at_++] - '0');
    }
    return value;
  }

  const char* text_;
  size_t at_ = 0, end_;
  bool ignore_case_ = false;
};

namespace {

// Add what a sequence may start with to first[129]; returns whether it may also match nothing.
bool add_first(const RegexSequence& sequence, uint64_t bit, uint64_t* first) {
  for (const RegexNode& node : sequence) {
    bool can_be_empty = true;
    if (node.kind == RegexNode::CLASS) {
      for (size_t c = 0; c < 128; ++c) {
        if (node.set.ascii[c >> 6] >> (c & 63) & 1) first[c] |= bit;
      }
      first[128] |= bit;
      can_be_empty = node.min == 0;
    } else if (node.kind == RegexNode::GROUP) {
      can_be_empty = node.min == 0;
      for (const RegexSequence& inner : node.alternatives) can_be_empty |= add_first(inner, bit, first);
    }
    if (!can_be_empty) return false;
  }
  return true;
}

}  // namespace

void Regex::index_first() {
  for (size_t i = 0; i < alternatives_.size(); ++i) {
    const uint64_t bit = uint64_t{1} << i;
    if (add_first(alternatives_[i], bit, first_)) {
      for (uint64_t& mask : first_) mask |= bit;
    }
  }
}

int Regex::parse(const char* pattern, size_t n_bytes) {
  category_ = category_table();
  RegexParser parser(pattern, n_bytes);
  if (!parser.parse_all(alternatives_) || alternatives_.size() > 64) return STATUS_BAD_ARGUMENT;
  index_first();
  return STATUS_OK;
}

}  // namespace cext
