// Rotary position embedding: the parameters, and the cos/sin table of a token, which its heads share.
// Source: arXiv:2104.09864 (rotation), arXiv:2309.00071 (YaRN); parameters with the meaning of ggml_rope_ext.
#pragma once
#include <cstdint>

namespace cext {

enum RopeKind : int32_t {
  ROPE_NONE = 0,
  ROPE_NORM = 1,  // pairs (2i, 2i + 1)
  ROPE_NEOX = 2,  // pairs (i, i + n_rot / 2)
  ROPE_VISION = 3,  // pairs as NEOX; frequencies begin anew in each of two or more sections: rows and columns of an image
};

struct RopeParams {
  int32_t kind;         // RopeKind
  int32_t n_rot;        // dimensions rotated, even, at most the head's; the others pass
  float freq_base;
  float freq_scale;     // positions are multiplied by it (linear scaling); 1 = none
  float ext_factor;     // YaRN: 0 = interpolate all dimensions alike
  float attn_factor;    // magnitude of the rotated values; 1 = none
  float beta_fast, beta_slow;
  int32_t n_ctx_orig;   // YaRN: context of training
  int32_t sections[4];  // how many pairs turn by each of a token's four positions; all 0: a token has one position
  int32_t reserved;
  const float* freq_factors;  // [n_rot / 2], or null: each dimension's frequency is divided by it
};
static_assert(sizeof(RopeParams) == 64, "RopeParams is mirrored in Python");

inline bool rope_has_sections(const RopeParams* p) {
  return (p->sections[0] | p->sections[1] | p->sections[2] | p->sections[3]) != 0;
}

// Fill tables[i] for pos[i]: f32[n][n_rot], each row n_rot / 2 cosines, then n_rot / 2 sines, times the magnitude.
// With sections pos is i32[n][4]; they add up to n_rot / 2.
// Angles are made in double: right to a float's last bit for any int32 position. A negative position rotates back.
void rope_tables(const RopeParams* p, const int32_t* pos, int64_t n, float* tables);
// One table of a pure rotation by `delta` positions, on every axis: same frequencies, magnitude 1.
void rope_delta_table(const RopeParams* p, int32_t delta, float* table);

}  // namespace cext
