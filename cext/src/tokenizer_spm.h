// SentencePiece BPE ("llama"): characters merge into the token with the best score.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "tokenizer_core.h"

namespace cext {

class SpmTokenizer : public Tokenizer {
 public:
  // scores: [n_tokens], none of them NaN. unknown: the token for a byte without one, or -1. Returns a Status.
  int build(const Strings& texts, const uint8_t* types, const float* scores, const uint8_t* strips,
            bool add_space_prefix, int32_t unknown) noexcept;

 protected:
  void encode_text(const char* text, size_t n, bool is_first, std::vector<int32_t>& out) const override;

 private:
  struct Symbol {
    uint32_t start, size;   // bytes of the unit; size 0: merged into the one before
    int32_t previous, next;  // indices, -1: none
  };
  void encode_unit(const char* unit, size_t n, std::vector<int32_t>& out) const;
  void merge_unit(const char* unit, size_t n, std::vector<int32_t>& out) const;
  void merge_short(const char* unit, std::vector<Symbol>& symbols) const;
  void merge_long(const char* unit, std::vector<Symbol>& symbols) const;
  int32_t pair_token(const char* unit, const Symbol& left, const Symbol& right) const;
  void append(const char* text, size_t n, std::vector<int32_t>& out) const;

  bool add_space_prefix_ = false;
  int32_t unknown_ = -1;
  enum UnitState : uint8_t { UNIT_UNKNOWN, UNIT_IS_TOKEN, UNIT_IS_PIECES };
  std::unique_ptr<std::atomic<uint8_t>[]> unit_states_;  // [n_tokens]: what merging a token's own text gives
};

}  // namespace cext
