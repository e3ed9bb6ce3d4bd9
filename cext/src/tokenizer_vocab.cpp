// Build a vocabulary's tables straight from the file's bytes.
#include "tokenizer_vocab.h"

#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "unicode.h"

namespace cext {

namespace {

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

struct ByteLevel {
  int16_t byte_of[0x144];  // [code point]: the byte, or -1

  ByteLevel() {
    std::memset(byte_of, -1, sizeof(byte_of));
    int16_t next = 0x100;
    for (int16_t byte = 0; byte < 256; ++byte) {
      const bool is_itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      byte_of[is_itself ? byte : next++] = byte;
    }
  }
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte that a text like <0x0A> stands for, or -1.
int byte_of_text(const char* text, size_t n) {
  if (n != 6 || std::memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// Source: BlinkDL/RWKV-LM, rwkv_vocab_v20230424.txt: Python literals, as llama.cpp's converter escapes them.
size_t rwkv_bytes(const char* text, size_t n, char* out) {
  size_t size = 0;
  for (size_t i = 0; i < n; ++i) {
    if (text[i] != '\\' || i + 1 == n) {
      out[size++] = text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'x' && i + 2 < n && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0) {
      out[size++] = static_cast<char>(hex_digit(text[i + 1]) << 4 | hex_digit(text[i + 2]));
      i += 2;
    } else {
      out[size++] = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
    }
  }
  return size;
}

size_t unmark_spaces(const char* text, size_t n, char* out) {
  size_t size = 0;
  for (size_t i = 0; i < n;) {
    if (n - i >= 3 && std::memcmp(text + i, kSpaceMark, 3) == 0) {
      out[size++] = ' ';
      i += 3;
    } else {
      out[size++] = text[i++];
    }
  }
  return size;
}

uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0xD6E8FEB86659FD93ull;
  h ^= h >> 29;
  return h;
}

}  // namespace

size_t byte_level_bytes(const char* text, size_t n, char* out) {
  static const ByteLevel table;
  size_t size = 0;
  for (size_t i = 0; i < n;) {
    size_t length;
    const uint32_t c = decode_utf8(text, i, n, &length);
    if (c >= 0x144 || table.byte_of[c] < 0) return SIZE_MAX;
    out[size++] = static_cast<char>(table.byte_of[c]);
    i += length;
  }
  return size;
}

uint64_t hash_bytes(const char* text, size_t n) {
  uint64_t h = n * 0x9E3779B97F4A7C15ull;
  while (n >= 8) {
    uint64_t word;
    std::memcpy(&word, text, 8);
    h = mix(h ^ word) * 0x9E3779B97F4A7C15ull;
    text += 8;
    n -= 8;
  }
  uint64_t word = 0;
  std::memcpy(&word, text, n);
  return mix((h ^ word) * 0xBF58476D1CE4E5B9ull);
}

void Pool::reserve(size_t n_strings, size_t n_bytes) {
  starts_.reserve(n_strings + 1);
  bytes_.reserve(n_bytes);
}

void Pool::add(const char* text, size_t n) {
  bytes_.insert(bytes_.end(), text, text + n);
  starts_.push_back(bytes_.size());
}

void Vocab::build(const Strings& texts, const uint8_t* types, const float* scores, PieceForm form) {
  form_ = form;
  const auto n = static_cast<size_t>(texts.n);
  types_.assign(types, types + n);
  has_key_.assign(n, 0);
  if (scores) scores_.assign(scores, scores + n);
  std::memset(byte_tokens_, -1, sizeof(byte_tokens_));
  size_t n_bytes = 0;
  for (int64_t i = 0; i < texts.n; ++i) n_bytes += texts.size(i);
  texts_.reserve(n, n_bytes);
  pieces_.reserve(n, n_bytes);
  uint64_t n_slots = 16;
  while (n_slots < 2 * n) n_slots *= 2;
  slots_.assign(n_slots, 0);
  slot_mask_ = n_slots - 1;
  for (int64_t i = 0; i < texts.n; ++i) {
    texts_.add(texts.text(i), texts.size(i));
    add_piece(i);
  }
  index_keys();
}

void Vocab::index_keys() {
  constexpr int32_t kAhead = 16;  // tokens between asking for a slot's memory and writing there
  std::vector<uint64_t> hashes(types_.size());
  for (int32_t id = 0; id < n_tokens(); ++id) {
    hashes[static_cast<size_t>(id)] = hash_bytes(key_text(id), key_size(id));
  }
  for (int32_t id = 0; id < n_tokens(); ++id) {
    if (id + kAhead < n_tokens()) prefetch(hashes[static_cast<size_t>(id + kAhead)]);
    if (has_key_[static_cast<size_t>(id)]) add_key(id, hashes[static_cast<size_t>(id)]);
  }
}

void Vocab::add_piece(int64_t i) {
  const auto id = static_cast<size_t>(i);
  const char* text = texts_.text(id);
  const size_t n = texts_.size(id);
  const TokenType type = this->type(static_cast<int32_t>(i));
  const bool is_marker = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN;
  char small[256];
  std::unique_ptr<char[]> large(n > sizeof(small) ? new char[n] : nullptr);
  char* out = large ? large.get() : small;
  size_t size = SIZE_MAX;
  if (form_ == PIECE_BYTE_LEVEL) {
    if (type == TOKEN_BYTE && byte_of_text(text, n) >= 0) {
      out[0] = static_cast<char>(byte_of_text(text, n));
      size = 1;
    } else {
      size = byte_level_bytes(text, n, out);
      const bool is_plain = !is_marker && type != TOKEN_USER_DEFINED;
      has_key_[id] = n > 0 && size != SIZE_MAX && (is_plain || size == n);
      if (size == 1 && is_plain) byte_tokens_[static_cast<uint8_t>(out[0])] = static_cast<int32_t>(i);
      if (!is_plain) size = SIZE_MAX;
    }
  } else if (form_ == PIECE_SPACE_MARK) {
    const int byte = type == TOKEN_BYTE ? byte_of_text(text, n) : -1;
    has_key_[id] = n > 0 && !is_marker && type != TOKEN_BYTE;
    if (byte >= 0) {
      out[0] = static_cast<char>(byte);
      size = 1;
      byte_tokens_[byte] = static_cast<int32_t>(i);
    } else if (!is_marker && type != TOKEN_USER_DEFINED) {
      size = unmark_spaces(text, n, out);
    }
    if (has_key_[id]) note_pairs(text, n);
  } else {
    size = rwkv_bytes(text, n, out);
    has_key_[id] = size > 0;
  }
  if (size == SIZE_MAX) {
    pieces_.add(text, n);
  } else {
    pieces_.add(out, size);
  }
  if (has_key_[id] && key_size(static_cast<int32_t>(i)) > longest_) longest_ = key_size(static_cast<int32_t>(i));
}

void Vocab::note_pairs(const char* text, size_t n) {
  for (size_t i = 1; i < n; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    has_pair_[static_cast<uint8_t>(text[i - 1])][byte >> 6] |= uint64_t{1} << (byte & 63);
    has_inner_mark_ |= byte == 0xE2 && is_mark(text, i, n) && !(i >= 3 && is_mark(text, i - 3, n));
  }
}

// Byte-level and RWKV keys are bytes, the others the file's own text. (A special token of a byte-level vocabulary has a
// key only where both are the same: printable ASCII.)
const char* Vocab::key_text(int32_t id) const {
  const auto i = static_cast<size_t>(id);
  return form_ == PIECE_SPACE_MARK ? texts_.text(i) : pieces_.text(i);
}

size_t Vocab::key_size(int32_t id) const {
  const auto i = static_cast<size_t>(id);
  return form_ == PIECE_SPACE_MARK ? texts_.size(i) : pieces_.size(i);
}

void Vocab::add_key(int32_t id, uint64_t hash) {
  const char* key = key_text(id);
  const size_t n = key_size(id);
  const uint64_t entry = (hash & 0xFFFFFFFF00000000ull) | static_cast<uint32_t>(id + 1);
  for (uint64_t slot = hash & slot_mask_;; slot = (slot + 1) & slot_mask_) {
    const uint64_t at = slots_[slot];
    if (at == 0) {
      slots_[slot] = entry;
      return;
    }
    if ((at ^ hash) >> 32) continue;
    const auto other = static_cast<int32_t>(at & 0xFFFFFFFF) - 1;
    if (key_size(other) != n || std::memcmp(key_text(other), key, n) != 0) continue;
    // The same key twice: a normal token is preferred, and of two alike the later one, as a dictionary would have it.
    if (type(id) == TOKEN_NORMAL || type(other) != TOKEN_NORMAL) slots_[slot] = entry;
    return;
  }
}

int32_t Vocab::find(const char* key, size_t n, uint64_t hash) const {
  if (n > longest_) return -1;
  for (uint64_t slot = hash & slot_mask_;; slot = (slot + 1) & slot_mask_) {
    const uint64_t at = slots_[slot];
    if (at == 0) return -1;
    if ((at ^ hash) >> 32) continue;
    const auto id = static_cast<int32_t>(at & 0xFFFFFFFF) - 1;
    if (key_size(id) == n && std::memcmp(key_text(id), key, n) == 0) return id;
  }
}

void Vocab::prefetch(uint64_t hash) const {
#if defined(__GNUC__)
  __builtin_prefetch(&slots_[hash & slot_mask_]);
#else
  (void)hash;
#endif
}

void find_texts(const Strings& texts, const Strings& names, int32_t* ids) {
  std::unordered_map<std::string_view, std::vector<int64_t>> wanted;
  bool has_length[256] = {}, has_first[256] = {};
  for (int64_t i = 0; i < names.n; ++i) {
    ids[i] = -1;
    wanted[std::string_view(names.text(i), names.size(i))].push_back(i);
    if (names.size(i) == 0 || names.size(i) >= 256) continue;
    has_length[names.size(i)] = true;
    has_first[static_cast<uint8_t>(names.text(i)[0])] = true;
  }
  for (int64_t id = 0; id < texts.n; ++id) {
    const size_t n = texts.size(id);
    if (n >= 256 || !has_length[n] || !has_first[static_cast<uint8_t>(texts.text(id)[0])]) continue;
    const auto found = wanted.find(std::string_view(texts.text(id), n));
    if (found == wanted.end()) continue;
    for (const int64_t i : found->second) ids[i] = static_cast<int32_t>(id);
  }
}

}  // namespace cext
