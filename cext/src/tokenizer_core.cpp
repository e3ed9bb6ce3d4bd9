// Cut text at special tokens; join the bytes of tokens.
#include "tokenizer_core.h"

#include <new>

#include "status.h"

namespace cext {

namespace {

bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

size_t ByteTrie::slot_of(uint64_t key) const {
  const size_t mask = keys_.size() - 1;
  size_t slot = static_cast<size_t>((key * 0x9E3779B97F4A7C15ull) >> 24) & mask;
  while (keys_[slot] != 0 && keys_[slot] != key) slot = (slot + 1) & mask;
  return slot;
}

void ByteTrie::grow() {
  std::vector<uint64_t> keys(keys_.empty() ? 256 : keys_.size() * 2, 0);
  std::vector<int32_t> targets(keys.size(), kNone);
  keys.swap(keys_);
  targets.swap(targets_);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == 0) continue;
    const size_t slot = slot_of(keys[i]);
    keys_[slot] = keys[i];
    targets_[slot] = targets[i];
  }
}

void ByteTrie::add(const char* key, size_t n, int32_t value) {
  if (n == 0 || n > kLongestKey) return;
  int32_t node = kRoot;
  for (size_t i = 0; i < n; ++i) {
    if (2 * (n_edges_ + 1) > keys_.size()) grow();
    const uint64_t edge = (static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(key[i])) + 1;
    const size_t slot = slot_of(edge);
    if (keys_[slot] == 0) {
      keys_[slot] = edge;
      targets_[slot] = static_cast<int32_t>(values_.size());
      values_.push_back(kNone);
      ++n_edges_;
    }
    node = targets_[slot];
  }
  values_[static_cast<size_t>(node)] = value;
}

int32_t ByteTrie::step(int32_t node, uint8_t byte) const {
  if (keys_.empty()) return kNone;
  const uint64_t edge = (static_cast<uint64_t>(node) << 8 | byte) + 1;
  const size_t slot = slot_of(edge);
  return keys_[slot] == edge ? targets_[slot] : kNone;
}

int32_t ByteTrie::longest(const char* text, size_t pos, size_t end, size_t* behind) const {
  int32_t found = kNone, node = kRoot;
  while (pos < end && (node = step(node, static_cast<uint8_t>(text[pos]))) != kNone) {
    ++pos;
    if (value(node) == kNone) continue;
    found = value(node);
    *behind = pos;
  }
  return found;
}

void Tokenizer::build_specials(const uint8_t* strips) {
  for (int32_t id = 0; id < vocab_.n_tokens(); ++id) {
    const TokenType type = vocab_.type(id);
    if (type != TOKEN_CONTROL && type != TOKEN_UNKNOWN && type != TOKEN_USER_DEFINED) continue;
    const char* text = vocab_.texts().text(static_cast<size_t>(id));
    const size_t n = vocab_.texts().size(static_cast<size_t>(id));
    specials_.add(text, n, id);
    if (n > 0) starts_special_[static_cast<uint8_t>(text[0])] = true;
    if (strips && strips[id]) strips_[id] = strips[id];
  }
}

int32_t Tokenizer::special_at(const char* text, size_t pos, size_t n, bool parse_special, size_t* behind) const {
  int32_t found = -1, node = ByteTrie::kRoot;
  while (pos < n && (node = specials_.step(node, static_cast<uint8_t>(text[pos]))) != ByteTrie::kNone) {
    ++pos;
    const int32_t id = specials_.value(node);
    if (id < 0 || (!parse_special && vocab_.type(id) != TOKEN_USER_DEFINED)) continue;
    found = id;
    *behind = pos;
  }
  return found;
}

int Tokenizer::cut(const char* text, size_t n, bool parse_special, std::vector<TextPart>& parts) const noexcept {
  try {
    size_t start = 0, behind = 0;
    for (size_t pos = 0; pos < n;) {
      const int32_t id =
          starts_special_[static_cast<uint8_t>(text[pos])] ? special_at(text, pos, n, parse_special, &behind) : -1;
      if (id < 0) {
        ++pos;
        continue;
      }
      const auto strip = strips_.empty() ? strips_.end() : strips_.find(id);
      const uint8_t flags = strip == strips_.end() ? 0 : strip->second;
      size_t left = pos;
      while ((flags & STRIP_LEFT) && left > start && is_ascii_space(text[left - 1])) --left;
      if (left > start) parts.push_back({start, left, -1});
      parts.push_back({pos, behind, id});
      while ((flags & STRIP_RIGHT) && behind < n && is_ascii_space(text[behind])) ++behind;
      pos = start = behind;
    }
    if (n > start) parts.push_back({start, n, -1});
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

int Tokenizer::encode(const char* text, size_t n, bool parse_special, bool is_first,
                      std::vector<int32_t>& out) const noexcept {
  try {
    std::vector<TextPart> parts;
    const int status = cut(text, n, parse_special, parts);
    if (status != STATUS_OK) return status;
    for (const TextPart& part : parts) {
      if (part.token < 0) {
        encode_text(text + part.begin, part.end - part.begin, is_first, out);
      } else {
        out.push_back(part.token);
      }
      is_first = part.token >= 0;
    }
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

int Tokenizer::decode(const int32_t* ids, size_t n, bool with_special, std::vector<char>& out) const noexcept {
  try {
    for (size_t i = 0; i < n; ++i) {
      const TokenType type = vocab_.type(ids[i]);
      if (!with_special && (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)) continue;
      const auto id = static_cast<size_t>(ids[i]);
      const char* piece = vocab_.pieces().text(id);
      out.insert(out.end(), piece, piece + vocab_.pieces().size(id));
    }
  } catch (const std::bad_alloc&) {
    return STATUS_NO_MEMORY;
  }
  return STATUS_OK;
}

}  // namespace cext
