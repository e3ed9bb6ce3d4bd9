// Cache rows in plain C. The quantisers round as the `gguf` package's do, so that files of either agree.
#include "kv_types.h"

#include <cmath>
#include <cstring>

#include "blocks.h"
#include "half.h"
#include "quant_types.h"
#include "status.h"

namespace cext {
namespace {

constexpr int kMaxHead = 1024;
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

float inverse(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

// A NaN becomes 0.
int clip(double v, int hi) { return v > hi ? hi : v >= 0.0 ? (int)v : 0; }

// The value of largest magnitude, with its sign; the first of equals.
float signed_max(const float* x) {
  float best = 0.0f;
  for (int i = 0; i < QK; ++i)
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  return best;
}

void range_of(const float* x, float* lo, float* hi) {
  *lo = *hi = x[0];
  for (int i = 1; i < QK; ++i) {
    if (x[i] < *lo) *lo = x[i];
    if (x[i] > *hi) *hi = x[i];
  }
}

void put_nibbles(const int* q, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

void put_fifth_bits(const int* q, uint8_t* qh) {
  uint32_t bits = 0;
  for (int j = 0; j < QK; ++j) bits |= (uint32_t)(q[j] >> 4 & 1) << j;
  for (int j = 0; j < 4; ++j) qh[j] = (uint8_t)(bits >> (8 * j));
}

int fifth_bit(const uint8_t* qh, int j) { return (qh[j >> 3] >> (j & 7) & 1) << 4; }

// Symmetric around `half` (8 or 16): q = x / d + half, d of the sign that lets the largest value use -half.
void quantize_signed(const float* x, int half, float* d, int* q) {
  *d = signed_max(x) / (float)-half;
  const double id = inverse(*d);
  // NUMERICS: product and sum in double, as the reference does, so that ties fall the same way.
  for (int j = 0; j < QK; ++j) q[j] = clip((double)x[j] * id + (half + 0.5), 2 * half - 1);
}

void quantize_range(const float* x, int top, float* d, float* m, int* q) {
  float hi;
  range_of(x, m, &hi);
  *d = (hi - *m) / (float)top;
  const float id = inverse(*d);
  for (int j = 0; j < QK; ++j) q[j] = clip((x[j] - *m) * id + 0.5f, top);
}

int nearest_iq4(float v) {
  int best = 0;
  for (int i = 1; i < 16; ++i)
    if (std::fabs(v - kIq4Values[i]) < std::fabs(v - kIq4Values[best])) best = i;
  return best;
}

void encode(const float* x, block_q8_0* b) {
  const float d = std::fabs(signed_max(x)) / 127.0f, id = inverse(d);
  b->d = f32_to_f16(d);
  for (int j = 0; j < QK; ++j) {
    const float v = x[j] * id;
    const int away = clip(std::fabs(v) + 0.5f, 127);
    b->qs[j] = (int8_t)(v < 0.0f ? -away : away);
  }
}

void encode(const float* x, block_q4_0* b) {
  float d;
  int q[QK];
  quantize_signed(x, 8, &d, q);
  b->d = f32_to_f16(d);
  put_nibbles(q, b->qs);
}

void encode(const float* x, block_q5_0* b) {
  float d;
  int q[QK];
  quantize_signed(x, 16, &d, q);
  b->d = f32_to_f16(d);
  put_nibbles(q, b->qs);
  put_fifth_bits(q, b->qh);
}

void encode(const float* x, block_q4_1* b) {
  float d, m;
  int q[QK];
  quantize_range(x, 15, &d, &m, q);
  b->d = f32_to_f16(d), b->m = f32_to_f16(m);
  put_nibbles(q, b->qs);
}

void encode(const float* x, block_q5_1* b) {
  float d, m;
  int q[QK];
  quantize_range(x, 31, &d, &m, q);
  b->d = f32_to_f16(d), b->m = f32_to_f16(m);
  put_nibbles(q, b->qs);
  put_fifth_bits(q, b->qh);
}

// Non-linear levels: a first scale from the largest value, then the least-squares one, large values weighing more.
void encode(const float* x, block_iq4_nl* b) {
  const float first = signed_max(x) / kIq4Values[0], id = inverse(first);
  float sum_qx = 0.0f, sum_q2 = 0.0f;
  for (int j = 0; j < QK; ++j) {
    const float level = kIq4Values[nearest_iq4(id * x[j])], weight = x[j] * x[j];
    sum_qx += weight * level * x[j];
    sum_q2 += weight * level * level;
  }
  const float d = sum_q2 > 0.0f ? sum_qx / sum_q2 : 0.0f, id2 = inverse(d);
  int q[QK];
  for (int j = 0; j < QK; ++j) q[j] = nearest_iq4(id2 * x[j]);
  b->d = f32_to_f16(d);
  put_nibbles(q, b->qs);
}

void decode(const block_q8_0* b, float* x) {
  const float d = f16_to_f32(b->d);
  for (int j = 0; j < QK; ++j) x[j] = d * b->qs[j];
}

void decode(const block_q4_0* b, float* x) {
  const float d = f16_to_f32(b->d);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * ((b->qs[j] & 15) - 8);
    x[j + 16] = d * ((b->qs[j] >> 4) - 8);
  }
}

void decode(const block_q4_1* b, float* x) {
  const float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * (b->qs[j] & 15) + m;
    x[j + 16] = d * (b->qs[j] >> 4) + m;
  }
}

void decode(const block_q5_0* b, float* x) {
  const float d = f16_to_f32(b->d);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * (((b->qs[j] & 15) | fifth_bit(b->qh, j)) - 16);
    x[j + 16] = d * (((b->qs[j] >> 4) | fifth_bit(b->qh, j + 16)) - 16);
  }
}

void decode(const block_q5_1* b, float* x) {
  const float d = f16_to_f32(b->d), m = f16_to_f32(b->m);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * ((b->qs[j] & 15) | fifth_bit(b->qh, j)) + m;
    x[j + 16] = d * ((b->qs[j] >> 4) | fifth_bit(b->qh, j + 16)) + m;
  }
}

void decode(const block_iq4_nl* b, float* x) {
  const float d = f16_to_f32(b->d);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * kIq4Values[b->qs[j] & 15];
    x[j + 16] = d * kIq4Values[b->qs[j] >> 4];
  }
}

template <typename Block>
int encode_blocks(const float* x, int64_t d, uint8_t* row) {
  for (int64_t i = 0; i < d / QK; ++i) encode(x + i * QK, reinterpret_cast<Block*>(row) + i);
  return STATUS_OK;
}

template <typename Block>
int decode_blocks(const uint8_t* row, int64_t d, float* x) {
  for (int64_t i = 0; i < d / QK; ++i) decode(reinterpret_cast<const Block*>(row) + i, x + i * QK);
  return STATUS_OK;
}

}  // namespace

int64_t kv_row_bytes(int32_t type, int64_t d) {
  switch (type) {
    case TYPE_F32: case TYPE_F16: case TYPE_BF16:
    case TYPE_Q8_0: case TYPE_Q4_0: case TYPE_Q4_1: case TYPE_Q5_0: case TYPE_Q5_1: case TYPE_IQ4_NL: break;
    default: return 0;
  }
  const BlockSize block = block_size_of(type);
  return d > 0 && d <= kMaxHead && d % block.elements == 0 ? d / block.elements * block.bytes : 0;
}

int kv_encode_row(int32_t type, const float* x, int64_t d, uint8_t* row) {
  // SAFETY: blocks have an alignment of at most 2; rows of all types but f32 are whole blocks at even offsets.
  switch (type) {
    case TYPE_F32: std::memcpy(row, x, (size_t)d * sizeof(float)); return STATUS_OK;
    case TYPE_F16:
      for (int64_t i = 0; i < d; ++i) reinterpret_cast<uint16_t*>(row)[i] = f32_to_f16(x[i]);
      return STATUS_OK;
    case TYPE_BF16:
      for (int64_t i = 0; i < d; ++i) reinterpret_cast<uint16_t*>(row)[i] = f32_to_bf16(x[i]);
      return STATUS_OK;
    case TYPE_Q8_0: return encode_blocks<block_q8_0>(x, d, row);
    case TYPE_Q4_0: return encode_blocks<block_q4_0>(x, d, row);
    case TYPE_Q4_1: return encode_blocks<block_q4_1>(x, d, row);
    case TYPE_Q5_0: return encode_blocks<block_q5_0>(x, d, row);
    case TYPE_Q5_1: return encode_blocks<block_q5_1>(x, d, row);
    case TYPE_IQ4_NL: return encode_blocks<block_iq4_nl>(x, d, row);
    default: return STATUS_BAD_TYPE;
  }
}

int kv_decode_row(int32_t type, const uint8_t* row, int64_t d, float* x) {
  switch (type) {
    case TYPE_F32: std::memcpy(x, row, (size_t)d * sizeof(float)); return STATUS_OK;
    case TYPE_F16:
      for (int64_t i = 0; i < d; ++i) x[i] = f16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
      return STATUS_OK;
    case TYPE_BF16:
      for (int64_t i = 0; i < d; ++i) x[i] = bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
      return STATUS_OK;
    case TYPE_Q8_0: return decode_blocks<block_q8_0>(row, d, x);
    case TYPE_Q4_0: return decode_blocks<block_q4_0>(row, d, x);
    case TYPE_Q4_1: return decode_blocks<block_q4_1>(row, d, x);
    case TYPE_Q5_0: return decode_blocks<block_q5_0>(row, d, x);
    case TYPE_Q5_1: return decode_blocks<block_q5_1>(row, d, x);
    case TYPE_IQ4_NL: return decode_blocks<block_iq4_nl>(row, d, x);
    default: return STATUS_BAD_TYPE;
  }
}

int kv_rotate_row(int32_t type, uint8_t* row, int64_t d, int32_t kind, int64_t n_rot, const float* table) {
  if (kv_row_bytes(type, d) == 0) return STATUS_BAD_TYPE;
  if (kind == ROPE_NONE) return STATUS_OK;
  if (n_rot < 0 || n_rot > d || n_rot % 2 != 0) return STATUS_BAD_ARGUMENT;
  float x[kMaxHead];
  kv_decode_row(type, row, d, x);
  const int64_t n_pairs = n_rot / 2;
  for (int64_t i = 0; i < n_pairs; ++i) {
    float* a = kind == ROPE_NEOX ? x + i : x + 2 * i;
    float* b = kind == ROPE_NEOX ? x + n_pairs + i : a + 1;
    const float c = table[i], s = table[n_pairs + i], u = *a, v = *b;
    *a = u * c - v * s;
    *b = u * s + v * c;
  }
  return kv_encode_row(type, x, d, row);
}

}  // namespace cext
