// Longest match from the left, word by word. Source: google-research/bert, tokenization.py, WordpieceTokenizer; a token
// that starts a word has U+2581 in front in GGUF, where BERT's files mark all others with ##.
#include "tokenizer_wpm.h"

#include <cstring>
#include <new>

#include "status.h"

namespace cext {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

}  // namespace

int WpmTokenizer::build(const Strings& texts, const uint8_t* types, const uint8_t* strips, int32_t unknown) noexcept {
  try {
    unknown_ = unknown;
    vocab_.build(texts, types, nullptr, PIECE_SPACE_MARK);
    build_specials(strips);
    for (int32_t id = 0; id < vocab_.n_tokens(); ++id) {
      const TokenType type = vocab_.type(id);
      if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN) continue;
      tokens_.add(vocab_.texts().text(static_cast<size_t>(id)), vocab_.texts().size(static_cast<size_t>(id)), id);
    }
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

void WpmTokenizer::encode_text(const char* text, size_t n, bool, std::vector<int32_t>& out) const {
  std::vector<char> word;
  for (size_t pos = 0; pos < n;) {
    if (text[pos] == ' ') {
      ++pos;
      continue;
    }
    const void* space = std::memchr(text + pos, ' ', n - pos);
    const size_t end = space ? static_cast<size_t>(static_cast<const char*>(space) - text) : n;
    word.assign(kSpaceMark, kSpaceMark + 3);
    word.insert(word.end(), text + pos, text + end);
    encode_word(word.data(), word.size(), out);
    pos = end;
  }
}

void WpmTokenizer::encode_word(const char* word, size_t n, std::vector<int32_t>& out) const {
  const size_t n_before = out.size();
  for (size_t pos = 0; pos < n;) {
    const int32_t id = tokens_.longest(word, pos, n, &pos);
    if (id == ByteTrie::kNone) {
      out.resize(n_before);
      if (unknown_ >= 0) out.push_back(unknown_);
      return;
    }
    out.push_back(id);
  }
}

}  // namespace cext
