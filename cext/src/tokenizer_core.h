// What all tokenizers share: special tokens are cut out of the text first, the rest goes to the model's own rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tokenizer_vocab.h"

namespace cext {

// A prefix tree over bytes; its edges lie in one hash table.
class ByteTrie {
 public:
  static constexpr int32_t kRoot = 0, kNone = -1;
  // Longer keys, which no sound vocabulary has, are left out: one look at a place in a text must stay cheap.
  static constexpr size_t kLongestKey = 512;

  // An empty key is left out, too.
  void add(const char* key, size_t n, int32_t value);
  int32_t step(int32_t node, uint8_t byte) const;   // the node behind that edge, or kNone
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }  // or kNone
  // The value of the longest key that text[pos..end) starts with, or kNone; *behind is where it ends.
  int32_t longest(const char* text, size_t pos, size_t end, size_t* behind) const;

 private:
  void grow();
  size_t slot_of(uint64_t key) const;

  std::vector<int32_t> values_ = {kNone};  // [n_nodes]
  std::vector<uint64_t> keys_;             // [n_slots], node << 8 | byte, plus 1; 0 is free
  std::vector<int32_t> targets_;           // [n_slots]
  size_t n_edges_ = 0;
};

// A part of a text: a special token, or what stands between two of them.
struct TextPart {
  size_t begin, end;  // bytes
  int32_t token;      // -1: text
};

// Which white space around a special token goes with it.
enum StripFlag : uint8_t { STRIP_LEFT = 1, STRIP_RIGHT = 2 };

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Append the parts of text[n]. Control and unknown tokens in it are recognised where parse_special, user-defined ones
  // always; of several that start at one place the longest, and the leftmost first. White space that goes with a
  // token is in no part. Returns a Status.
  int cut(const char* text, size_t n, bool parse_special, std::vector<TextPart>& parts) const noexcept;

  // Append the ids of text[n]. is_first: it stands at the start, or behind a special token. Returns a Status.
  int encode(const char* text, size_t n, bool parse_special, bool is_first, std::vector<int32_t>& out) const noexcept;

  // Append the bytes of ids[n] (all within the vocabulary). Returns a Status.
  int decode(const int32_t* ids, size_t n, bool with_special, std::vector<char>& out) const noexcept;

  const Vocab& vocab() const { return vocab_; }

 protected:
  // strips: [n_tokens] StripFlags, or null.
  void build_specials(const uint8_t* strips);
  // Append the ids of text without special tokens; is_first: nothing or a special token stands before it.
  virtual void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const = 0;

  Vocab vocab_;

 private:
  int32_t special_at(const char* text, size_t pos, size_t n, bool parse_special, size_t* behind) const;

  ByteTrie specials_;
  bool starts_special_[256] = {};
  std::unordered_map<int32_t, uint8_t> strips_;
};

}  // namespace cext
