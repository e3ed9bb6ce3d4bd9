#include "rare_rows.h"

#include <cmath>

namespace cext {

void xielu(const float* x, const float* p, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    if (v > 0) {
      out[i] = p[1] * v * v + p[2] * v;
    } else {
      out[i] = (std::expm1(v < p[3] ? v : p[3]) - v) * p[0] + p[2] * v;
    }
  }
}

void glu_oai(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] < 7.0f ? gate[i] : 7.0f, u = up[i] < -7.0f ? -7.0f : up[i] > 7.0f ? 7.0f : up[i];
    out[i] = g / (1.0f + std::exp(-1.702f * g)) * (u + 1.0f);
  }
}

void top_k(const float* x, int64_t n, int64_t n_used, int64_t n_group, int64_t n_group_used, int32_t* out) {
  constexpr int64_t MAX_GROUPS = 64;
  bool open[MAX_GROUPS];
  const int64_t groups = n_group > 1 && n_group <= MAX_GROUPS && n % n_group == 0 ? n_group : 1, size = n / groups;
  for (int64_t g = 0; g < groups; ++g) open[g] = groups == 1;
  for (int64_t i = 0; groups > 1 && i < n_group_used && i < groups; ++i) {
    int64_t best = -1;
    float best_score = 0;
    for (int64_t g = 0; g < groups; ++g) {
      if (open[g]) continue;
      float first = -INFINITY, second = -INFINITY;
      for (int64_t e = g * size; e < (g + 1) * size; ++e) {
        if (x[e] > first) {
          second = first;
          first = x[e];
        } else if (x[e] > second) {
          second = x[e];
        }
      }
      const float score = size > 1 ? first + second : first;
      if (best < 0 || score > best_score) {
        best = g;
        best_score = score;
      }
    }
    open[best] = true;
  }
  for (int64_t j = 0; j < n_used; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < n; ++e) {
      if (!open[e / size] || (best >= 0 && !(x[e] > x[best]))) continue;
      bool taken = false;
      for (int64_t i = 0; i < j; ++i) taken |= out[i] == e;
      if (!taken) best = e;
    }
    out[j] = static_cast<int32_t>(best < 0 ? 0 : best);
  }
}

void mul_head_sum(const float* x, const float* y, int64_t n_head, int64_t d, float* out) {
  for (int64_t h = 0; h < n_head; ++h) {
    float sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += y[h * d + i];
    for (int64_t i = 0; i < d; ++i) out[h * d + i] = x[h * d + i] * sum;
  }
}

}  // namespace cext
