// Row operations that few models have: plain code, for their time does not count.
#pragma once
#include <cstdint>

namespace cext {

// xIELU with p = alpha_n, alpha_p (as they act), beta, eps. Source: arXiv:2411.13010.
void xielu(const float* x, const float* p, int64_t n, float* out);

// out = g * sigmoid(1.702 g) * (u + 1) with g = min(gate, 7) and u within [-7, 7]. Source: the gpt-oss models.
void glu_oai(const float* gate, const float* up, int64_t n, float* out);

// Places of the n_used largest values of x, largest first; the first of equal ones wins. With n_group > 1 only the
// n_group_used groups with the largest sum of their two best take part. Source: arXiv:2412.19437 section 2.1.2.
void top_k(const float* x, int64_t n, int64_t n_used, int64_t n_group, int64_t n_group_used, int32_t* out);

// out = x times the sum of y, for each of n_head heads of d values.
void mul_head_sum(const float* x, const float* y, int64_t n_head, int64_t d, float* out);

}  // namespace cext
