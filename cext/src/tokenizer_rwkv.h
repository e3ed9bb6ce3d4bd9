// RWKV's own vocabulary ("rwkv"): the longest token that the text goes on with, again and again.
#pragma once

#include "tokenizer_core.h"

namespace cext {

class RwkvTokenizer : public Tokenizer {
 public:
  // unknown: the token for a byte that starts none, or -1. Returns a Status.
  int build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept;

 protected:
  void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const override;

 private:
  ByteTrie tokens_;
  int32_t unknown_ = -1;
};

}  // namespace cext
