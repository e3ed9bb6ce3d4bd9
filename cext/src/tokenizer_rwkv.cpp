// Greedy longest match over bytes. Source: BlinkDL/ChatRWKV, tokenizer/rwkv_tokenizer.py.
#include "tokenizer_rwkv.h"

#include <new>

#include "status.h"

namespace cext {

int RwkvTokenizer::build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept {
  try {
    unknown_ = unknown;
    vocab_.build(texts, types, nullptr, PIECE_RWKV);
    build_specials(strips);
    for (int32_t id = 0; id < vocab_.n_tokens(); ++id) {
      if (vocab_.type(id) == TOKEN_CONTROL || vocab_.type(id) == TOKEN_UNKNOWN) continue;
      const auto i = static_cast<size_t>(id);
      tokens_.add(vocab_.pieces().text(i), vocab_.pieces().size(i), id);
    }
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

void RwkvTokenizer::encode_text(const char* text, size_t n, bool, std::vector<int32_t>& out) const {
  for (size_t pos = 0; pos < n;) {
    size_t behind = pos + 1;
    const int32_t id = tokens_.longest(text, pos, n, &behind);
    if (id != ByteTrie::kNone) {
      out.push_back(id);
    } else if (unknown_ >= 0) {
      out.push_back(unknown_);
    }
    pos = behind;
  }
}

}  // namespace cext
