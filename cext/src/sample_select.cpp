// The k largest logits without sorting the vocabulary: one pass for the maximum of every 64, whose k-th largest is a
// lower bound of the k-th largest logit, then only the blocks that reach it are looked into.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sample.h"
#include "status.h"

namespace cext {
namespace {

constexpr int64_t BLOCK = 64;
constexpr int LANES = 16;

// Maximum of x[BLOCK]; *bad turns NaN if any value is not finite. Lanes are independent, so that the compiler may
// use vectors without reordering a sum.
float block_max(const float* x, float* bad) {
  float top[LANES], nan[LANES] = {};
  for (int l = 0; l < LANES; ++l) top[l] = x[l];
  for (int64_t i = 0; i < BLOCK; i += LANES)
    for (int l = 0; l < LANES; ++l) {
      const float v = x[i + l];
      top[l] = v > top[l] ? v : top[l];
      nan[l] += v * 0.0f;
    }
  for (int half = LANES / 2; half; half /= 2)
    for (int l = 0; l < half; ++l) {
      top[l] = top[l + half] > top[l] ? top[l + half] : top[l];
      nan[l] += nan[l + half];
    }
  *bad += nan[0];
  return top[0];
}

float rest_max(const float* x, int64_t n, float* bad) {
  float top = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    top = x[i] > top ? x[i] : top;
    *bad += x[i] * 0.0f;
  }
  return top;
}

}  // namespace

int logits_top_k(const float* logits, int64_t n, int64_t k, std::vector<Candidate>* out) {
  const int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
  thread_local std::vector<float> maxima, order;
  maxima.resize(static_cast<size_t>(n_blocks));
  float bad = 0.0f;
  for (int64_t b = 0; b < n_blocks; ++b) {
    const float* x = logits + b * BLOCK;
    maxima[static_cast<size_t>(b)] =
        b * BLOCK + BLOCK <= n ? block_max(x, &bad) : rest_max(x, n - b * BLOCK, &bad);
  }
  if (std::isnan(bad)) return STATUS_NOT_FINITE;

  float bound = -std::numeric_limits<float>::infinity();
  if (k <= n_blocks) {
    order = maxima;
    std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<float>());
    bound = order[static_cast<size_t>(k - 1)];
  }
  out->clear();
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (maxima[static_cast<size_t>(b)] < bound) continue;
    const int64_t end = std::min(n, b * BLOCK + BLOCK);
    for (int64_t i = b * BLOCK; i < end; ++i)
      if (logits[i] >= bound) out->push_back({static_cast<int32_t>(i), logits[i], 0.0f, 0.0f});
  }
  if (static_cast<int64_t>(out->size()) > k) {
    std::nth_element(out->begin(), out->begin() + (k - 1), out->end(), MoreLikely());
    out->resize(static_cast<size_t>(k));
  }
  std::sort(out->begin(), out->end(), MoreLikely());
  return STATUS_OK;
}

}  // namespace cext
