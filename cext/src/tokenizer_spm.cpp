// Merge characters by score. Source: google/sentencepiece, src/bpe_model.cc.
#include "tokenizer_spm.h"

#include <cstring>
#include <new>
#include <queue>

#include "status.h"
#include "unicode.h"

namespace cext {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581
// Up to so many symbols a scan over all pairs is faster than a heap.
constexpr size_t kShortUnit = 48;
// A unit is cut there at the latest, so that its indices fit 32 bits.
constexpr size_t kLongestUnit = size_t{1} << 30;

// A pair that may merge: the best score first, of equal ones the leftmost.
struct Candidate {
  float score;
  int32_t left, right;
  uint32_t size;
  bool operator<(const Candidate& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

}  // namespace

int SpmTokenizer::build(const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
                        bool add_space_prefix, int32_t unknown) noexcept {
  try {
    add_space_prefix_ = add_space_prefix;
    unknown_ = unknown;
    vocab_.build(texts, types, scores, PIECE_SPACE_MARK);
    build_specials(strips);
    const auto n = static_cast<size_t>(vocab_.n_tokens());
    unit_states_.reset(new std::atomic<uint8_t>[n]);
    for (size_t i = 0; i < n; ++i) unit_states_[i].store(UNIT_UNKNOWN, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

void SpmTokenizer::encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const {
  std::vector<char> marked;
  marked.reserve(n + n / 2 + 3);
  if (is_first && add_space_prefix_) marked.insert(marked.end(), kSpaceMark, kSpaceMark + 3);
  for (size_t i = 0; i < n; ++i) {
    if (text[i] == ' ') {
      marked.insert(marked.end(), kSpaceMark, kSpaceMark + 3);
    } else {
      marked.push_back(text[i]);
    }
  }
  const char* all = marked.data();
  const size_t end = marked.size();
  size_t start = 0;
  for (size_t at = 1; at < end; ++at) {
    const bool is_character = (static_cast<uint8_t>(all[at]) & 0xC0) != 0x80;
    if (!vocab_.can_cut(all, at, end) && !(is_character && at - start >= kLongestUnit)) continue;
    encode_unit(all + start, at - start, out);
    start = at;
  }
  if (end > start) encode_unit(all + start, end - start, out);
}

void SpmTokenizer::encode_unit(const char* unit, size_t n, std::vector<int32_t>& out) const {
  const int32_t id = vocab_.find(unit, n);
  if (id < 0) return merge_unit(unit, n, out);
  std::atomic<uint8_t>& state = unit_states_[static_cast<size_t>(id)];
  const uint8_t known = state.load(std::memory_order_relaxed);
  if (known == UNIT_IS_TOKEN) return out.push_back(id);
  const size_t n_before = out.size();
  merge_unit(unit, n, out);
  if (known == UNIT_UNKNOWN) {
    const bool is_token = out.size() == n_before + 1 && out.back() == id;
    state.store(is_token ? UNIT_IS_TOKEN : UNIT_IS_PIECES, std::memory_order_relaxed);
  }
}

void SpmTokenizer::merge_unit(const char* unit, size_t n, std::vector<int32_t>& out) const {
  std::vector<Symbol> symbols;
  for (size_t pos = 0; pos < n;) {
    size_t length;
    decode_utf8(unit, pos, n, &length);
    const auto i = static_cast<int32_t>(symbols.size());
    symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(length), i - 1, i + 1});
    pos += length;
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  if (symbols.size() <= kShortUnit) {
    merge_short(unit, symbols);
    for (const Symbol& symbol : symbols) append(unit + symbol.start, symbol.size, out);
  } else {
    merge_long(unit, symbols);
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = symbols[static_cast<size_t>(i)];
      append(unit + symbol.start, symbol.size, out);
    }
  }
}

int32_t SpmTokenizer::pair_token(const char* unit, const Symbol& left, const Symbol& right) const {
  return vocab_.find(unit + left.start, left.size + right.size);
}

// The symbols left over are moved to the front.
void SpmTokenizer::merge_short(const char* unit, std::vector<Symbol>& symbols) const {
  int32_t pairs[kShortUnit];
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = pair_token(unit, symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] >= 0 && (best == n || vocab_.score(pairs[i]) > vocab_.score(pairs[best]))) best = i;
    }
    if (best == n) break;
    symbols[best].size += symbols[best + 1].size;
    --n;
    for (size_t i = best + 1; i < n; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = pair_token(unit, symbols[best - 1], symbols[best]);
    if (best + 1 < n) pairs[best] = pair_token(unit, symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

void SpmTokenizer::merge_long(const char* unit, std::vector<Symbol>& symbols) const {
  std::priority_queue<Candidate> queue;
  const auto at = [&symbols](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const int32_t id = pair_token(unit, at(left), at(right));
    if (id >= 0) queue.push({vocab_.score(id), left, right, at(left).size + at(right).size});
  };
  for (size_t i = 1; i < symbols.size(); ++i) offer(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol &left = at(top.left), &right = at(top.right);
    if (left.size == 0 || right.size == 0 || left.size + right.size != top.size) continue;
    left.size += right.size;
    right.size = 0;
    left.next = right.next;
    if (left.next >= 0) at(left.next).previous = top.left;
    offer(left.previous, top.left);
    offer(top.left, left.next);
  }
}

// A symbol that is no token: its bytes, where the vocabulary has them, else the unknown token.
void SpmTokenizer::append(const char* text, size_t n, std::vector<int32_t>& out) const {
  const int32_t id = vocab_.find(text, n);
  if (id >= 0) return out.push_back(id);
  bool has_bytes = true;
  for (size_t i = 0; i < n; ++i) has_bytes &= vocab_.byte_token(static_cast<uint8_t>(text[i])) >= 0;
  if (has_bytes) {
    for (size_t i = 0; i < n; ++i) out.push_back(vocab_.byte_token(static_cast<uint8_t>(text[i])));
  } else if (unknown_ >= 0) {
    out.push_back(unknown_);
  }
}

}  // namespace cext
