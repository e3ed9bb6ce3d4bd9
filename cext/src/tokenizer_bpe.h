// Byte-pair encoding: split the text into words by the pre-tokenizer's patterns, then merge pairs by rank.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tokenizer_core.h"
#include "tokenizer_regex.h"

namespace cext {

struct BpeOptions {
  bool ignore_merges = false;   // a word that is a token is that token, whatever the merges say
  bool whole_newlines = false;  // the same, for words of newlines only
};

// Pairs of tokens that merge, in one open-addressing table.
class MergeTable {
 public:
  struct Merge {
    uint64_t pair;  // left << 32 | right, plus 1 so that 0 is free
    int32_t rank;   // the lower, the earlier
    int32_t id;     // of the merged token
  };

  // The id of each part is looked up in the vocabulary by its text. Returns -1, or the index of the first merge that
  // is no pair of tokens or whose result is no token.
  int64_t build(const Strings& merges, const Vocab& vocab);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  void add(int32_t left, int32_t right, int32_t rank, int32_t id);
  static uint64_t hash(uint64_t pair) {
    pair *= 0x9E3779B97F4A7C15ull;
    return pair ^ pair >> 29;
  }

  std::vector<Merge> slots_;
  uint64_t slot_mask_ = 0;
};

class BpeTokenizer : public Tokenizer {
 public:
  // patterns: one per splitting stage. *bad_index: the pattern or merge at fault where the answer is not 0:
  // STATUS_BAD_ARGUMENT for a pattern, STATUS_BAD_DATA for a merge.
  int build(const Strings& texts, const uint8_t* types, const uint8_t* strips, PieceForm form, const Strings& merges,
            const Strings& patterns, BpeOptions options, int64_t* bad_index) noexcept;

  // Append (first byte, byte behind) of each word that the patterns split text[n] into. Returns a Status.
  int split(const char* text, size_t n, std::vector<size_t>& spans) const noexcept;

 protected:
  void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const override;

 private:
  void split_stage(size_t stage, const char* text, size_t begin, size_t end, std::vector<size_t>& spans) const;
  void encode_word(const char* word, size_t n, std::vector<int32_t>& out) const;
  void merge_word(const char* word, size_t n, std::vector<int32_t>& out) const;
  void merge_short(int32_t* ids, size_t n, std::vector<int32_t>& out) const;
  void merge_long(std::vector<int32_t>& ids, std::vector<int32_t>& out) const;
  void append_unmerged(const char* word, size_t n, std::vector<int32_t>& out) const;

  BpeOptions options_;
  MergeTable merges_;
  std::vector<Regex> stages_;
  // [n_tokens]: what merging a token's own bytes gives; learnt when first needed.
  enum WordState : uint8_t { WORD_UNKNOWN, WORD_IS_TOKEN, WORD_IS_PIECES };
  std::unique_ptr<std::atomic<uint8_t>[]> word_states_;
};

}  // namespace cext
