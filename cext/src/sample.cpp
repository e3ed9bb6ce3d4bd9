// The steps of the chain, each a function over the candidates that are left.
#include "sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "status.h"

namespace cext {
namespace {

using Candidates = std::vector<Candidate>;

// e^x for x <= 0; 0 below -87. Relative error under 2e-7, and the same bits on every CPU, which std::exp does not
// promise. Source: the polynomial of Cephes' expf (S. Moshier, netlib.org/cephes).
inline float exp_negative(float x) {
  const float z = x < -87.0f ? -87.0f : x;
  const float shifted = z * 1.44269504f + 12582912.0f;  // rounds to an integer in the low bits of the mantissa
  const float n = shifted - 12582912.0f;
  const float r = (z - n * 0.693359375f) - n * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  return x < -87.0f ? 0.0f : y * scale;
}

float max_logit(const Candidates& c) {
  float top = c[0].logit;
  for (const Candidate& x : c) top = x.logit > top ? x.logit : top;
  return top;
}

// p of each candidate from its logit divided by temperature.
void softmax(Candidates* c, double temperature) {
  constexpr size_t CHUNK = 128;
  const float top = max_logit(*c);
  const double scale = 1.0 / temperature;
  float x[CHUNK];
  double sum = 0.0;
  for (size_t begin = 0; begin < c->size(); begin += CHUNK) {
    const size_t n = std::min(CHUNK, c->size() - begin);
    Candidate* part = c->data() + begin;
    for (size_t i = 0; i < n; ++i)
      x[i] = static_cast<float>(std::max((static_cast<double>(part[i].logit) - top) * scale, -88.0));
    for (size_t i = 0; i < n; ++i) x[i] = exp_negative(x[i]);
    for (size_t i = 0; i < n; ++i) {
      part[i].p = x[i];
      sum += x[i];
    }
  }
  const float share = static_cast<float>(1.0 / sum);
  for (Candidate& x : *c) x.p *= share;
}

// Keep the first candidates in the order of `before` until `enough` says so of the sum of their p; the order in which
// they lie stays. The last one to keep is found by halving, without sorting.
template <class Before, class Enough>
void keep_until(Candidates* c, Before before, Enough enough) {
  Candidates rest = *c;
  double kept = 0.0;
  int64_t lo = 0, hi = static_cast<int64_t>(rest.size());
  while (hi - lo > 1) {
    const int64_t mid = lo + (hi - lo) / 2;
    std::nth_element(rest.begin() + lo, rest.begin() + mid, rest.begin() + hi, before);
    double sum = kept;
    for (int64_t i = lo; i < mid; ++i) sum += rest[static_cast<size_t>(i)].p;
    if (enough(sum)) {
      hi = mid;
    } else {
      kept = sum;
      lo = mid;
    }
  }
  const Candidate last = rest[static_cast<size_t>(lo)];
  c->erase(std::remove_if(c->begin(), c->end(), [&](const Candidate& x) { return before(last, x); }), c->end());
}

// Source: Meister et al., "Locally typical sampling", arXiv:2202.00666.
void typical(Candidates* c, double p) {
  softmax(c, 1.0);
  double entropy = 0.0;
  for (const Candidate& x : *c)
    if (x.p > 0.0f) entropy -= x.p * std::log(static_cast<double>(x.p));
  for (Candidate& x : *c)
    x.key = x.p > 0.0f ? static_cast<float>(std::fabs(-std::log(static_cast<double>(x.p)) - entropy)) : INFINITY;
  keep_until(
      c, [](const Candidate& a, const Candidate& b) { return a.key != b.key ? a.key < b.key : a.id < b.id; },
      [p](double sum) { return sum > p; });
}

// Source: Holtzman et al., "The curious case of neural text degeneration", arXiv:1904.09751.
void top_p(Candidates* c, double p) {
  softmax(c, 1.0);
  // All that are rarer than this add up to less than 1 - p, so the others reach p without them.
  const double rare = (1.0 - p) / static_cast<double>(c->size()) * 0.99;
  c->erase(std::remove_if(c->begin(), c->end(), [rare](const Candidate& x) { return x.p < rare; }), c->end());
  keep_until(c, MoreLikely(), [p](double sum) { return sum >= p; });
}

// Source: Nguyen et al., "Turning up the heat: min-p sampling", arXiv:2407.01082.
void min_p(Candidates* c, double p) {
  const double bound = static_cast<double>(max_logit(*c)) + std::log(p);
  c->erase(std::remove_if(c->begin(), c->end(), [bound](const Candidate& x) { return x.logit < bound; }), c->end());
}

void keep_best(Candidates* c) {
  (*c)[0] = *std::min_element(c->begin(), c->end(), MoreLikely());
  (*c)[0].p = 1.0f;
  c->resize(1);
}

uint64_t splitmix64(uint64_t* x) {
  uint64_t z = (*x += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

Xoshiro256::Xoshiro256(uint64_t seed) {
  for (uint64_t& word : s) word = splitmix64(&seed);
}

uint64_t Xoshiro256::next() {
  const uint64_t result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return result;
}

double Xoshiro256::uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

SampleChain::SampleChain(const SampleParams& params, int64_t n_vocab, uint64_t seed)
    : rng(seed), params_(params), n_vocab_(n_vocab) {}

bool SampleChain::penalises() const {
  return params_.repeat_last_n != 0 &&
         (params_.repeat_penalty != 1.0 || params_.frequency_penalty != 0.0 || params_.presence_penalty != 0.0);
}

void SampleChain::accept(int32_t token) {
  if (!penalises()) return;
  window_.push_back(token);
  ++counts_[token];
  if (params_.repeat_last_n < 0 || static_cast<int64_t>(window_.size()) <= params_.repeat_last_n) return;
  const auto oldest = counts_.find(window_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  window_.erase(window_.begin());
}

void SampleChain::reset_window() {
  window_.clear();
  counts_.clear();
}

void SampleChain::adjust(const float* logits) {
  adjusted_.clear();
  auto bias = bias_.begin();
  auto count = counts_.begin();
  while (bias != bias_.end() || count != counts_.end()) {
    const bool has_bias = bias != bias_.end() && (count == counts_.end() || bias->first <= count->first);
    const bool has_count = count != counts_.end() && (bias == bias_.end() || count->first <= bias->first);
    const int32_t id = has_bias ? bias->first : count->first;
    double logit = static_cast<double>(logits[id]) + (has_bias ? bias->second : 0.0f);
    if (has_count) {
      logit = logit <= 0.0 ? logit * params_.repeat_penalty : logit / params_.repeat_penalty;
      logit -= count->second * params_.frequency_penalty + params_.presence_penalty;
      ++count;
    }
    if (has_bias) ++bias;
    adjusted_.push_back({id, static_cast<float>(logit), 0.0f, 0.0f});
  }
}

int SampleChain::collect(const float* logits) {
  adjust(logits);
  // A greedy choice needs one candidate; only the typical step may throw the most likely one away.
  const bool greedy = params_.temperature == 0.0 && params_.typical_p >= 1.0;
  const int64_t wanted = greedy ? 1 : params_.top_k > 0 ? std::min(params_.top_k, n_vocab_) : n_vocab_;
  const int64_t n_changed = static_cast<int64_t>(adjusted_.size());
  const int64_t n_taken = std::min(n_vocab_, wanted + n_changed);
  if (n_taken < n_vocab_ || wanted < n_vocab_) {
    const int status = logits_top_k(logits, n_vocab_, n_taken, &candidates_);
    if (status) return status;
  } else {
    candidates_.resize(static_cast<size_t>(n_vocab_));
    float bad = 0.0f;
    for (int64_t i = 0; i < n_vocab_; ++i) {
      bad += logits[i] * 0.0f;
      candidates_[static_cast<size_t>(i)] = {static_cast<int32_t>(i), logits[i], 0.0f, 0.0f};
    }
    if (std::isnan(bad)) return STATUS_NOT_FINITE;
  }
  if (n_changed) {
    const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
    const auto changed = [&](const Candidate& x) {
      return std::binary_search(adjusted_.begin(), adjusted_.end(), x, by_id);
    };
    candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(), changed), candidates_.end());
    for (const Candidate& x : adjusted_)
      if (!std::isinf(x.logit)) candidates_.push_back(x);
    if (candidates_.empty()) return STATUS_BAD_ARGUMENT;
    if (static_cast<int64_t>(candidates_.size()) > wanted) {
      std::nth_element(candidates_.begin(), candidates_.begin() + (wanted - 1), candidates_.end(), MoreLikely());
      candidates_.resize(static_cast<size_t>(wanted));
    }
  }
  return STATUS_OK;
}

int SampleChain::distribution(const float* logits) {
  const int status = collect(logits);
  if (status) return status;
  if (params_.typical_p < 1.0) typical(&candidates_, params_.typical_p);
  if (params_.temperature == 0.0) {
    keep_best(&candidates_);
    return STATUS_OK;
  }
  if (params_.top_p < 1.0) top_p(&candidates_, params_.top_p);
  if (params_.min_p > 0.0) min_p(&candidates_, params_.min_p);
  softmax(&candidates_, params_.temperature);
  return STATUS_OK;
}

int SampleChain::sample(const float* logits, int32_t* token) {
  const int status = distribution(logits);
  if (status) return status;
  *token = candidates_.back().id;
  if (candidates_.size() == 1) return STATUS_OK;
  double sum = 0.0;
  for (const Candidate& x : candidates_) sum += x.p;
  double left = rng.uniform() * sum;
  for (const Candidate& x : candidates_) {
    left -= x.p;
    if (left < 0.0) {
      *token = x.id;
      break;
    }
  }
  return STATUS_OK;
}

}  // namespace cext
