// Words and their merges. Source: Sennrich et al., arXiv:1508.07909; byte level: openai/gpt-2, encoder.py.
#include "tokenizer_bpe.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <queue>

#include "status.h"
#include "unicode.h"

namespace cext {

namespace {

// Up to so many symbols a scan over all pairs is faster than a heap.
constexpr size_t kShortWord = 48;
constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

// A pair that may merge: the earliest rank first, of equal ones the leftmost.
struct Candidate {
  int32_t rank, left, left_id, right_id, id;
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

}  // namespace

void MergeTable::add(int32_t left, int32_t right, int32_t rank, int32_t id) {
  const uint64_t pair = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right)) + 1;
  uint64_t slot = hash(pair) & slot_mask_;
  while (slots_[slot].pair != 0) {
    if (slots_[slot].pair == pair) return;
    slot = (slot + 1) & slot_mask_;
  }
  slots_[slot] = {pair, rank, id};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right)) + 1;
  for (uint64_t slot = hash(pair) & slot_mask_;; slot = (slot + 1) & slot_mask_) {
    if (slots_[slot].pair == pair) return &slots_[slot];
    if (slots_[slot].pair == 0) return nullptr;
  }
}

int64_t MergeTable::build(const Strings& merges, const Vocab& vocab) {
  uint64_t n_slots = 16;
  while (n_slots < static_cast<uint64_t>(merges.n) * 8 / 5) n_slots *= 2;
  slots_.assign(n_slots, Merge{0, 0, 0});
  slot_mask_ = n_slots - 1;
  // A batch is hashed, and its slots asked from memory, before the first of them is looked at.
  constexpr int64_t kBatch = 32;
  struct Parts {
    size_t start, n_left, n_right;
    uint64_t left, right, both;
  } parts[kBatch];
  std::vector<char> bytes;
  for (int64_t base = 0; base < merges.n; base += kBatch) {
    const int64_t n = std::min(kBatch, merges.n - base);
    bytes.clear();
    for (int64_t i = 0; i < n; ++i) {
      const char* text = merges.text(base + i);
      const size_t size = merges.size(base + i);
      const void* space = size > 1 ? std::memchr(text + 1, ' ', size - 1) : nullptr;
      if (!space) return base + i;
      const auto n_left = static_cast<size_t>(static_cast<const char*>(space) - text);
      Parts& part = parts[i];
      part = {bytes.size(), n_left, size - n_left - 1, 0, 0, 0};
      bytes.resize(part.start + size - 1);
      char* out = bytes.data() + part.start;
      if (vocab.form() == PIECE_BYTE_LEVEL) {
        part.n_left = byte_level_bytes(text, n_left, out);
        if (part.n_left == SIZE_MAX) return base + i;
        part.n_right = byte_level_bytes(text + n_left + 1, size - n_left - 1, out + part.n_left);
        if (part.n_right == SIZE_MAX) return base + i;
      } else {
        std::memcpy(out, text, n_left);
        std::memcpy(out + n_left, text + n_left + 1, part.n_right);
      }
      bytes.resize(part.start + part.n_left + part.n_right);
      part.left = hash_bytes(out, part.n_left);
      part.right = hash_bytes(out + part.n_left, part.n_right);
      part.both = hash_bytes(out, part.n_left + part.n_right);
      for (const uint64_t h : {part.left, part.right, part.both}) vocab.prefetch(h);
    }
    for (int64_t i = 0; i < n; ++i) {
      const Parts& part = parts[i];
      const char* text = bytes.data() + part.start;
      const int32_t left = vocab.find(text, part.n_left, part.left);
      const int32_t right = vocab.find(text + part.n_left, part.n_right, part.right);
      const int32_t both = vocab.find(text, part.n_left + part.n_right, part.both);
      if (left < 0 || right < 0 || both < 0) return base + i;
      add(left, right, static_cast<int32_t>(base + i), both);
    }
  }
  return -1;
}

int BpeTokenizer::build(const Strings& texts, const uint8_t* types, const uint8_t* strips, PieceForm form,
                        const Strings& merges, const Strings& patterns, BpeOptions options,
                        int64_t* bad_index) noexcept {
  try {
    options_ = options;
    vocab_.build(texts, types, nullptr, form);
    build_specials(strips);
    *bad_index = merges_.build(merges, vocab_);
    if (*bad_index >= 0) return STATUS_BAD_DATA;
    stages_.resize(static_cast<size_t>(patterns.n));
    for (int64_t i = 0; i < patterns.n; ++i) {
      *bad_index = i;
      if (stages_[static_cast<size_t>(i)].parse(patterns.text(i), patterns.size(i))) return STATUS_BAD_ARGUMENT;
    }
    const auto n = static_cast<size_t>(vocab_.n_tokens());
    word_states_.reset(new std::atomic<uint8_t>[n]);
    for (size_t i = 0; i < n; ++i) word_states_[i].store(WORD_UNKNOWN, std::memory_order_relaxed);
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

void BpeTokenizer::split_stage(size_t stage, const char* text, size_t begin, size_t end,
                               std::vector<size_t>& spans) const {
  if (begin == end) return;
  if (stage == stages_.size()) {
    spans.push_back(begin);
    spans.push_back(end);
    return;
  }
  size_t start = begin;
  for (size_t pos = begin; pos < end;) {
    size_t skip = pos + 1;
    const size_t behind = stages_[stage].match(text, pos, end, &skip);
    if (behind == Regex::kNone) {
      pos = skip;
      continue;
    }
    split_stage(stage + 1, text, start, pos, spans);
    split_stage(stage + 1, text, pos, behind, spans);
    pos = start = behind;
  }
  split_stage(stage + 1, text, start, end, spans);
}

int BpeTokenizer::split(const char* text, size_t n, std::vector<size_t>& spans) const noexcept {
  try {
    split_stage(0, text, 0, n, spans);
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

void BpeTokenizer::encode_text(const char* text, size_t n, bool, std::vector<int32_t>& out) const {
  std::vector<char> marked;
  if (vocab_.form() == PIECE_SPACE_MARK) {
    marked.reserve(n + n / 2);
    for (size_t i = 0; i < n; ++i) {
      if (text[i] == ' ') {
        marked.insert(marked.end(), kSpaceMark, kSpaceMark + 3);
      } else {
        marked.push_back(text[i]);
      }
    }
    text = marked.data();
    n = marked.size();
  }
  std::vector<size_t> spans;
  split_stage(0, text, 0, n, spans);
  for (size_t i = 0; i < spans.size(); i += 2) {
    size_t start = spans[i];
    const size_t end = spans[i + 1];
    for (size_t at = start + 1; vocab_.form() == PIECE_SPACE_MARK && at < end; ++at) {
      if (!vocab_.can_cut(text, at, end)) continue;
      encode_word(text + start, at - start, out);
      start = at;
    }
    encode_word(text + start, end - start, out);
  }
}

void BpeTokenizer::encode_word(const char* word, size_t n, std::vector<int32_t>& out) const {
  const int32_t id = vocab_.find(word, n);
  if (id < 0) return merge_word(word, n, out);
  if (vocab_.type(id) == TOKEN_NORMAL) {
    const bool is_newlines = options_.whole_newlines && std::all_of(word, word + n, [](char c) { return c == '\n'; });
    if (options_.ignore_merges || is_newlines) return out.push_back(id);
  }
  std::atomic<uint8_t>& state = word_states_[static_cast<size_t>(id)];
  const uint8_t known = state.load(std::memory_order_relaxed);
  if (known == WORD_IS_TOKEN) return out.push_back(id);
  const size_t n_before = out.size();
  merge_word(word, n, out);
  if (known == WORD_UNKNOWN) {
    const bool is_token = out.size() == n_before + 1 && out.back() == id;
    state.store(is_token ? WORD_IS_TOKEN : WORD_IS_PIECES, std::memory_order_relaxed);
  }
}

void BpeTokenizer::merge_word(const char* word, size_t n, std::vector<int32_t>& out) const {
  const bool by_byte = vocab_.form() == PIECE_BYTE_LEVEL;
  int32_t few[kShortWord];
  std::vector<int32_t> many;
  size_t count = 0;
  const auto flush = [&] {
    if (count > kShortWord) {
      merge_long(many, out);
    } else {
      merge_short(few, count, out);
    }
    many.clear();
    count = 0;
  };
  for (size_t pos = 0; pos < n;) {
    size_t length = 1;
    if (!by_byte) decode_utf8(word, pos, n, &length);
    const int32_t id = by_byte ? vocab_.byte_token(static_cast<uint8_t>(word[pos])) : vocab_.find(word + pos, length);
    if (id < 0) {
      // What is no token by itself merges with nothing.
      flush();
      append_unmerged(word + pos, length, out);
    } else {
      if (count == kShortWord) many.assign(few, few + kShortWord);
      if (count < kShortWord) {
        few[count] = id;
      } else {
        many.push_back(id);
      }
      ++count;
    }
    pos += length;
  }
  flush();
}

void BpeTokenizer::merge_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const {
  const MergeTable::Merge* pairs[kShortWord];
  for (size_t i = 0; i + 1 < n; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] && (best == n || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == n) break;
    ids[best] = pairs[best]->id;
    --n;
    for (size_t i = best + 1; i < n; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < n; ++i) pairs[i] = pairs[i + 1];
    if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = merges_.find(ids[best], ids[best + 1]);
  }
  out.insert(out.end(), ids, ids + n);
}

void BpeTokenizer::merge_long(std::vector<int32_t>& ids, std::vector<int32_t>& out) const {
  const auto n = static_cast<int32_t>(ids.size());
  std::vector<int32_t> previous(ids.size()), next(ids.size());
  std::priority_queue<Candidate> queue;
  const auto at = [](int32_t i) { return static_cast<size_t>(i); };
  const auto offer = [&](int32_t left, int32_t right) {
    if (left < 0 || right >= n) return;
    const MergeTable::Merge* merge = merges_.find(ids[at(left)], ids[at(right)]);
    if (merge) queue.push({merge->rank, left, ids[at(left)], ids[at(right)], merge->id});
  };
  for (int32_t i = 0; i < n; ++i) {
    previous[at(i)] = i - 1;
    next[at(i)] = i + 1;
    offer(i, i + 1);
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const int32_t left = top.left, right = next[at(left)];
    if (ids[at(left)] != top.left_id || right >= n || ids[at(right)] != top.right_id) continue;
    ids[at(left)] = top.id;
    ids[at(right)] = -1;  // gone: no candidate's left_id
    next[at(left)] = next[at(right)];
    if (next[at(left)] < n) previous[at(next[at(left)])] = left;
    offer(previous[at(left)], left);
    offer(left, next[at(left)]);
  }
  for (int32_t i = 0; i < n; i = next[at(i)]) out.push_back(ids[at(i)]);
}

// A character that no token stands for: its bytes, where the vocabulary has them; else it leaves no trace.
void BpeTokenizer::append_unmerged(const char* word, size_t n, std::vector<int32_t>& out) const {
  for (size_t i = 0; i < n; ++i) {
    const int32_t id = vocab_.byte_token(static_cast<uint8_t>(word[i]));
    if (id >= 0) out.push_back(id);
  }
}

}  // namespace cext
