// A vocabulary: the text, the bytes and the type of every token, and the way back from bytes to a token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cext {

// Source: GGUF specification, tokenizer.ggml.token_type.
enum TokenType : uint8_t {
  TOKEN_UNDEFINED, TOKEN_NORMAL, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE, TOKEN_TYPE_COUNT
};

// How a token's text in the file becomes the bytes it stands for.
enum PieceForm : int32_t {
  PIECE_BYTE_LEVEL = 0,   // each character is one byte, by GPT-2's table
  PIECE_SPACE_MARK = 1,   // U+2581 is a space, <0xXX> a byte
  PIECE_RWKV = 2,         // \n \t \r \\ \xXX escapes
};

// Strings in one blob, as a GGUF array has them.
struct Strings {
  const uint8_t* blob;      // [n_bytes]
  const uint64_t* offsets;  // [n], each offset + length lies within the blob
  const uint64_t* lengths;  // [n]
  int64_t n;

  const char* text(int64_t i) const { return reinterpret_cast<const char*>(blob) + offsets[i]; }
  size_t size(int64_t i) const { return static_cast<size_t>(lengths[i]); }
};

// Text as bytes by GPT-2's table: the byte of each character, into out[n]; returns how many, or SIZE_MAX where a
// character is not in the table. Source: openai/gpt-2, encoder.py, bytes_to_unicode.
size_t byte_level_bytes(const char* text, size_t n, char* out);

uint64_t hash_bytes(const char* text, size_t n);

// Own strings, one behind the other.
class Pool {
 public:
  void reserve(size_t n_strings, size_t n_bytes);
  void add(const char* text, size_t n);
  const char* text(size_t i) const { return bytes_.data() + starts_[i]; }
  size_t size(size_t i) const { return static_cast<size_t>(starts_[i + 1] - starts_[i]); }
  size_t count() const { return starts_.size() - 1; }

 private:
  std::vector<char> bytes_;
  std::vector<uint64_t> starts_ = {0};  // [n + 1]
};

class Vocab {
 public:
  // Copies everything. May throw std::bad_alloc.
  void build(const Strings& texts, const uint8_t* types, const float* scores, PieceForm form);

  int32_t n_tokens() const { return static_cast<int32_t>(types_.size()); }
  TokenType type(int32_t id) const { return static_cast<TokenType>(types_[static_cast<size_t>(id)]); }
  float score(int32_t id) const { return scores_.empty() ? 0.0f : scores_[static_cast<size_t>(id)]; }
  PieceForm form() const { return form_; }
  const Pool& texts() const { return texts_; }    // as in the file
  const Pool& pieces() const { return pieces_; }  // the bytes each stands for

  // The token that text written by anyone may become: for PIECE_BYTE_LEVEL by its bytes, else by its text in the file
  // (where control, unknown and byte tokens are left out). -1 where there is none.
  int32_t find(const char* key, size_t n) const { return find(key, n, hash_bytes(key, n)); }
  int32_t find(const char* key, size_t n, uint64_t hash) const;
  void prefetch(uint64_t hash) const;
  int32_t byte_token(uint8_t byte) const { return byte_tokens_[byte]; }  // -1 where there is none

  // Whether no key of PIECE_SPACE_MARK goes over text[pos], 0 < pos < n: the text can be encoded in two parts.
  bool can_cut(const char* text, size_t pos, size_t n) const {
    const auto before = static_cast<uint8_t>(text[pos - 1]), at = static_cast<uint8_t>(text[pos]);
    if ((at & 0xC0) == 0x80) return false;
    if (!(has_pair_[before][at >> 6] >> (at & 63) & 1)) return true;
    return !has_inner_mark_ && at == 0xE2 && is_mark(text, pos, n) && !(pos >= 3 && is_mark(text, pos - 3, n));
  }

 private:
  void add_piece(int64_t id);
  static bool is_mark(const char* text, size_t pos, size_t n) {
    return n - pos >= 3 && text[pos] == '\xE2' && text[pos + 1] == '\x96' && text[pos + 2] == '\x81';
  }
  void note_pairs(const char* text, size_t n);
  void index_keys();
  void add_key(int32_t id, uint64_t hash);
  const char* key_text(int32_t id) const;
  size_t key_size(int32_t id) const;

  PieceForm form_ = PIECE_BYTE_LEVEL;
  Pool texts_, pieces_;
  std::vector<uint8_t> types_, has_key_;
  std::vector<float> scores_;
  std::vector<uint64_t> slots_;  // open addressing: id + 1 in the low half, high half of the hash above; 0 is free
  uint64_t slot_mask_ = 0;
  size_t longest_ = 0;
  int32_t byte_tokens_[256];
  uint64_t has_pair_[256][4] = {};  // bit per byte: some key has it right behind that one
  bool has_inner_mark_ = false;     // some key has a U+2581 behind another character
};

// ids[n_names]: the last token whose text is that name, or -1.
void find_texts(const Strings& texts, const Strings& names, int32_t* ids);

}  // namespace cext
