// WordPiece ("bert"): each word is the longest tokens that make it up.
#pragma once

#include "tokenizer_core.h"

namespace cext {

class WpmTokenizer : public Tokenizer {
 public:
  // unknown: the token for a word that no tokens make up, or -1. Returns a Status.
  int build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept;

 protected:
  // The text is normalised already: words with white space between them.
  void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const override;

 private:
  void encode_word(const char* word, size_t n, std::vector<int32_t>& out) const;

  ByteTrie tokens_;
  int32_t unknown_ = -1;
};

}  // namespace cext
