// The k largest logits without sorting the vocabulary: one pass for the maximum of every 64, whose k-th largest is a
// lower bound of the k-th largest logit, then only the groups that reach it are looked into.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sample.h"
#include "status.h"

#if defined(_MSC_VER)
#define CEXT_RESTRICT __restrict
#else
#define CEXT_RESTRICT __restrict__
#endif

namespace cext {
namespace {

// A tile is ROWS rows of LANES logits and a group is one of its columns, so that the compiler may take the maxima of
// many groups with one vector.
constexpr int64_t LANES = 64, ROWS = 64, TILE = LANES * ROWS;

// top[LANES]: maxima of the columns of x[4 * n_fours, LANES]; odd[LANES] turns NaN where a value is not finite (or a
// sum of four overflows).
void column_maxima(const float* CEXT_RESTRICT x, int64_t n_fours, float* CEXT_RESTRICT top, float* CEXT_RESTRICT odd) {
  for (int64_t r = 0; r < n_fours; ++r, x += 4 * LANES)
    for (int64_t l = 0; l < LANES; ++l) {
      const float a = x[l], b = x[l + LANES], c = x[l + 2 * LANES], d = x[l + 3 * LANES];
      const float ab = b > a ? b : a, cd = d > c ? d : c, abcd = cd > ab ? cd : ab;
      top[l] = abcd > top[l] ? abcd : top[l];
      odd[l] += ((a + b) + (c + d)) * 0.0f;
    }
}

// maxima[n_groups] of all tiles; false if a value is not finite.
bool group_maxima(const float* x, int64_t n, float* maxima) {
  float odd[LANES] = {};
  for (int64_t i = 0; i < n; i += TILE, maxima += LANES) {
    const int64_t n_fours = std::min(ROWS, (n - i) / LANES) / 4, end = std::min(n, i + TILE);
    std::fill(maxima, maxima + LANES, -std::numeric_limits<float>::infinity());
    column_maxima(x + i, n_fours, maxima, odd);
    for (int64_t j = i + n_fours * 4 * LANES; j < end; ++j) {
      float& top = maxima[j % LANES];
      top = x[j] > top ? x[j] : top;
      odd[j % LANES] += x[j] * 0.0f;
    }
  }
  const bool sound = std::none_of(odd, odd + LANES, [](float v) { return std::isnan(v); });
  return sound || std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
}

}  // namespace

int logits_top_k(const float* logits, int64_t n, int64_t k, std::vector<Candidate>* out) {
  const int64_t n_groups = (n + TILE - 1) / TILE * LANES;
  thread_local std::vector<float> maxima, order;
  maxima.resize(static_cast<size_t>(n_groups));
  if (!group_maxima(logits, n, maxima.data())) return STATUS_NOT_FINITE;

  float bound = -std::numeric_limits<float>::infinity();
  if (k == 1) {
    bound = *std::max_element(maxima.begin(), maxima.end());
  } else if (k <= n_groups) {
    order = maxima;
    std::nth_element(order.begin(), order.begin() + (k - 1), order.end(), std::greater<float>());
    bound = order[static_cast<size_t>(k - 1)];
  }
  out->clear();
  for (int64_t g = 0; g < n_groups; ++g) {
    if (maxima[static_cast<size_t>(g)] < bound) continue;
    const int64_t tile = g / LANES * TILE, end = std::min(n, tile + TILE);
    for (int64_t i = tile + g % LANES; i < end; i += LANES)
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
