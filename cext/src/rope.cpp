// Rotation tables. Every frequency and angle is kept in double, so that position 1,000,000 is as exact as position 1.
#include "rope.h"

#include <cmath>
#include <cstring>

namespace cext {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr int kMaxPairs = 1024;

// The dimension at which a wave makes `n_turns` turns within the training context (YaRN).
float corr_dim(const RopeParams* p, float n_turns) {
  const double turns = p->n_ctx_orig / (n_turns * 2.0 * kPi);
  return (float)(p->n_rot * std::log(turns) / (2.0 * std::log((double)p->freq_base)));
}

// Angle per position of each pair of an image's heads, n pairs a section. Source: arXiv:2409.12191 2.1 (2-D RoPE).
void vision_frequencies(const RopeParams* p, double* freq) {
  for (int s = 0, i = 0; s < 4; ++s) {
    const double step = std::pow((double)p->freq_base, -1.0 / p->sections[s]);
    double power = 1.0;
    for (int j = 0; j < p->sections[s]; ++j, power *= step) freq[i++] = power;
  }
}

// Angle per position of each pair of dimensions, scaling, YaRN and factors applied: f64[n_rot / 2].
void frequencies(const RopeParams* p, double* freq) {
  if (p->kind == ROPE_VISION) return vision_frequencies(p, freq);
  const double step = std::pow((double)p->freq_base, -2.0 / p->n_rot);
  float low = 0.0f, high = 0.0f;
  if (p->ext_factor != 0.0f) {
    low = std::fmax(0.0f, std::floor(corr_dim(p, p->beta_fast)));
    high = std::fmin((float)(p->n_rot - 1), std::ceil(corr_dim(p, p->beta_slow)));
  }
  double power = 1.0;
  for (int i = 0; i < p->n_rot / 2; ++i, power *= step) {
    const double extrapolated = p->freq_factors ? power / p->freq_factors[i] : power;
    const double interpolated = extrapolated * p->freq_scale;
    double mix = 0.0;
    if (p->ext_factor != 0.0f) {
      const double ramp = (i - (double)low) / std::fmax(0.001f, high - low);
      mix = (1.0 - std::fmin(1.0, std::fmax(0.0, ramp))) * p->ext_factor;
    }
    freq[i] = interpolated * (1.0 - mix) + extrapolated * mix;
  }
}

// Cosine and sine to 1e-9: the angle less a multiple of pi / 2 in three exact parts, then Taylor series.
void turn(double theta, double* c, double* s) {
  constexpr double kHalfPi[3] = {0x1.921fb50000000p+0, 0x1.110b460000000p-26, 0x1.1a62633145c07p-54};
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to a whole number
  if (!(std::fabs(theta) < 4e8)) {
    *c = std::cos(theta);
    *s = std::sin(theta);
    return;
  }
  const double k = theta * (2.0 / kPi) + kRound - kRound;
  const double r = ((theta - k * kHalfPi[0]) - k * kHalfPi[1]) - k * kHalfPi[2], z = r * r;
  const double sine = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880))));
  const double cosine = 1.0 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 - z / 3628800))));
  const int quarter = (int)(int64_t)k & 3;
  const double x = quarter & 1 ? sine : cosine, y = quarter & 1 ? cosine : sine;
  *c = quarter == 1 || quarter == 2 ? -x : x;
  *s = quarter >= 2 ? -y : y;
}

// The axis whose position turns each pair.
void axes(const RopeParams* p, uint8_t* axis) {
  std::memset(axis, 0, p->n_rot / 2);
  for (int s = 0, i = 0; s < 4; ++s)
    for (int j = 0; j < p->sections[s] && i < p->n_rot / 2; ++j) axis[i++] = (uint8_t)s;
}

// pos[axis[i]] turns pair i; without axes pos[0] turns all.
void fill_table(const double* freq, int n_pairs, const int32_t* pos, const uint8_t* axis, double magnitude, float* table) {
  for (int i = 0; i < n_pairs; ++i) {
    double c, s;
    turn(pos[axis ? axis[i] : 0] * freq[i], &c, &s);
    table[i] = (float)(c * magnitude);
    table[n_pairs + i] = (float)(s * magnitude);
  }
}

}  // namespace

void rope_tables(const RopeParams* p, const int32_t* pos, int64_t n, float* tables) {
  if (p->kind == ROPE_NONE || p->n_rot <= 0 || p->n_rot > 2 * kMaxPairs) return;
  double freq[kMaxPairs];
  frequencies(p, freq);
  double magnitude = p->attn_factor;
  if (p->ext_factor != 0.0f) magnitude *= 1.0 + 0.1 * std::log(1.0 / p->freq_scale);
  const int n_pairs = p->n_rot / 2;
  if (!rope_has_sections(p)) {
    for (int64_t i = 0; i < n; ++i) fill_table(freq, n_pairs, pos + i, nullptr, magnitude, tables + i * p->n_rot);
    return;
  }
  uint8_t axis[kMaxPairs];
  axes(p, axis);
  for (int64_t i = 0; i < n; ++i) fill_table(freq, n_pairs, pos + 4 * i, axis, magnitude, tables + i * p->n_rot);
}

void rope_delta_table(const RopeParams* p, int32_t delta, float* table) {
  if (p->kind == ROPE_NONE || p->n_rot <= 0 || p->n_rot > 2 * kMaxPairs) return;
  double freq[kMaxPairs];
  frequencies(p, freq);
  fill_table(freq, p->n_rot / 2, &delta, nullptr, 1.0, table);
}

}  // namespace cext
