// SentencePiece Unigram ("t5"): the tokens whose scores add up to the most.
#pragma once

#include <vector>

#include "tokenizer_core.h"

namespace cext {

struct UgmOptions {
  bool add_space_prefix = false;
  bool remove_extra_whitespaces = false;
};

class UgmTokenizer : public Tokenizer {
 public:
  // scores: [n_tokens], none of them NaN. charsmap: [n_charsmap] SentencePiece's compiled normalisation, or null.
  // unknown: the token for what is none. Returns a Status; STATUS_BAD_DATA where the charsmap breaks its format.
  int build(const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
            const uint8_t* charsmap, size_t n_charsmap, UgmOptions options, int32_t unknown) noexcept;

 protected:
  void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const override;

 private:
  struct Normalized {
    const char* text;
    size_t size, n_read;
  };
  Normalized normalize_at(const char* text, size_t pos, size_t n) const;
  std::vector<char> normalize(const char* text, size_t n) const;
  uint32_t unit(size_t index) const { return index < units_.size() ? units_[index] : 0; }

  UgmOptions options_;
  int32_t unknown_ = 0;
  double unknown_score_ = 0;
  ByteTrie tokens_, user_defined_;
  std::vector<uint32_t> units_;      // double array of what is replaced
  std::vector<char> replacements_;   // texts, each ended by a zero byte
};

}  // namespace cext
