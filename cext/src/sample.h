// Choosing the next token: logits in, one id out. Pure functions of the logits, the parameters, the window of past
// tokens and the generator's state: the same on every CPU.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace cext {

// One token that may still be chosen.
struct Candidate {
  int32_t id;
  float logit;
  float p;    // probability among the candidates, after the last softmax
  float key;  // scratch of a step that orders by something else
};

// Larger logits first, of equals the lower id.
struct MoreLikely {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  }
};

struct SampleParams {
  double temperature;  // 0: the most likely token
  int64_t top_k;       // 0: off
  double top_p;        // 1: off
  double min_p;        // 0: off
  double typical_p;    // 1: off
  double repeat_penalty;
  double frequency_penalty;
  double presence_penalty;
  int64_t repeat_last_n;  // tokens the penalties look back; 0: none, -1: all
};

// xoshiro256**, seeded through splitmix64. Source: Blackman and Vigna, "Scrambled linear pseudorandom number
// generators", ACM TOMS 47 (2021); public domain reference at prng.di.unimi.it.
struct Xoshiro256 {
  uint64_t s[4];
  explicit Xoshiro256(uint64_t seed);
  uint64_t next();
  double uniform();  // in [0, 1), 53 bits
};

// The k largest of logits[n] in the order of MoreLikely; k in [1, n].
// Returns STATUS_NOT_FINITE if any logit is NaN or infinite.
int logits_top_k(const float* logits, int64_t n, int64_t k, std::vector<Candidate>* out);

// The order of the steps is llama.cpp's default chain: logit bias, penalties, top-k, typical, top-p, min-p,
// temperature, draw. Thread: one at a time.
class SampleChain {
 public:
  SampleChain(const SampleParams& params, int64_t n_vocab, uint64_t seed);

  void set_bias(int32_t id, float bias) { bias_[id] = bias; }

  // What is left of logits[n_vocab] after every step but the draw; p sums to 1. STATUS_NOT_FINITE for logits that are
  // not finite, STATUS_BAD_ARGUMENT if the bias forbids every token.
  int distribution(const float* logits);
  const std::vector<Candidate>& candidates() const { return candidates_; }

  // distribution() and one draw from it.
  int sample(const float* logits, int32_t* token);

  // Put a token into the window that the penalties see.
  void accept(int32_t token);
  void reset_window();
  const std::vector<int32_t>& window() const { return window_; }  // oldest first

  Xoshiro256 rng;

 private:
  void adjust(const float* logits);  // fills adjusted_: tokens with a bias or in the window, their new logits, by id
  int collect(const float* logits);  // candidates_ after bias, penalties and top-k
  bool penalises() const;

  SampleParams params_;
  int64_t n_vocab_;
  std::map<int32_t, float> bias_;
  std::vector<int32_t> window_;
  std::map<int32_t, int32_t> counts_;  // of each token in the window
  std::vector<Candidate> adjusted_;
  std::vector<Candidate> candidates_;
};

}  // namespace cext
