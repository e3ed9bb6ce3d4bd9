// Reads the file's blocks into whole numbers. Source: the formulas of the `gguf` package (gguf/quants.py).
#include "pack_rows.h"

#include <cstring>

#include "blocks.h"
#include "quant_types.h"

namespace cext {
namespace {

inline void read_nibbles(const uint8_t* qs, uint8_t* q) {  // value j: low nibble of byte j, value j + 16: its high nibble
  for (int j = 0; j < 16; ++j) {
    q[j] = qs[j] & 15;
    q[j + 16] = qs[j] >> 4;
  }
}

// Eight bits as eight bytes, each 16 where its bit is set.
struct BitBytes {
  uint8_t bytes[256][8];
  constexpr BitBytes() : bytes() {
    for (int value = 0; value < 256; ++value)
      for (int j = 0; j < 8; ++j) bytes[value][j] = (uint8_t)((value >> j & 1) << 4);
  }
};
constexpr BitBytes BITS;

inline void read_fifth_bits(const uint8_t* qh, uint8_t* q) {  // bit j belongs to value j
  for (int i = 0; i < 4; ++i, q += 8) {
    uint64_t values, bits;
    std::memcpy(&values, q, 8);
    std::memcpy(&bits, BITS.bytes[qh[i]], 8);
    values |= bits;
    std::memcpy(q, &values, 8);
  }
}

inline void read_nibble_runs(const uint8_t* qs, uint8_t* q) {  // per 64 values 32 bytes: low nibbles, then high nibbles
  for (int run = 0; run < 4; ++run)
    for (int j = 0; j < 32; ++j) {
      q[64 * run + j] = qs[32 * run + j] & 15;
      q[64 * run + 32 + j] = qs[32 * run + j] >> 4;
    }
}

inline void read_crumb_runs(const uint8_t* qs, uint8_t* q) {  // per 128 values 32 bytes: two bits for each of four runs of 32
  for (int half = 0; half < 2; ++half)
    for (int run = 0; run < 4; ++run)
      for (int j = 0; j < 32; ++j) q[128 * half + 32 * run + j] = qs[32 * half + j] >> 2 * run & 3;
}

inline void read_bit_runs(const uint8_t* bits, int shift, uint8_t* q) {  // bit i of byte j belongs to value 32 i + j
  for (int run = 0; run < 8; ++run)
    for (int j = 0; j < 32; ++j) q[32 * run + j] = (uint8_t)(q[32 * run + j] | (bits[j] >> run & 1) << shift);
}

void read_q6_k(const block_q6_k& b, RowStretch* out) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* ql = b.ql + 64 * half;
    const uint8_t* qh = b.qh + 32 * half;
    uint8_t* q = out->q + 128 * half;
    for (int j = 0; j < 64; ++j) {
      q[j] = ql[j] & 15;
      q[64 + j] = ql[j] >> 4;
    }
    for (int run = 0; run < 4; ++run)
      for (int j = 0; j < 32; ++j) q[32 * run + j] = (uint8_t)(q[32 * run + j] | (qh[j] >> 2 * run & 3) << 4);
  }
  for (int j = 0; j < 16; ++j) out->scale[j] = (uint8_t)b.scales[j];
  out->d = b.d;
}

template <class Block>
inline void read_k_scales(const Block& b, RowStretch* out) {
  for (int j = 0; j < 8; ++j) get_scale_min_k4(j, b.scales, &out->scale[j], &out->min[j]);
  out->d = b.d;
  out->m = b.dmin;
}

template <class Block>
inline const Block& as(const uint8_t* src) {
  return *reinterpret_cast<const Block*>(src);  // SAFETY: blocks hold bytes and uint16 at even offsets of an even address
}

}  // namespace

int row_stretch_cols(int32_t type) { return block_size_of(type).elements == QK ? QK : QK_K; }

void read_row_stretch(int32_t type, const uint8_t* src, RowStretch* out) {
  switch (type) {
    case TYPE_Q4_0:
    case TYPE_IQ4_NL: {
      const auto& b = as<block_q4_0>(src);
      read_nibbles(b.qs, out->q);
      out->d = b.d;
      return;
    }
    case TYPE_Q4_1: {
      const auto& b = as<block_q4_1>(src);
      read_nibbles(b.qs, out->q);
      out->d = b.d;
      out->m = b.m;
      return;
    }
    case TYPE_Q5_0: {
      const auto& b = as<block_q5_0>(src);
      read_nibbles(b.qs, out->q);
      read_fifth_bits(b.qh, out->q);
      out->d = b.d;
      return;
    }
    case TYPE_Q5_1: {
      const auto& b = as<block_q5_1>(src);
      read_nibbles(b.qs, out->q);
      read_fifth_bits(b.qh, out->q);
      out->d = b.d;
      out->m = b.m;
      return;
    }
    case TYPE_Q8_0: {
      const auto& b = as<block_q8_0>(src);
      for (int j = 0; j < 32; ++j) out->q[j] = (uint8_t)((uint8_t)b.qs[j] ^ 0x80u);
      out->d = b.d;
      return;
    }
    case TYPE_MXFP4: {
      const auto& b = as<block_mxfp4>(src);
      read_nibbles(b.qs, out->q);
      out->scale[0] = b.e;
      return;
    }
    case TYPE_Q2_K: {
      const auto& b = as<block_q2_k>(src);
      read_crumb_runs(b.qs, out->q);
      for (int j = 0; j < 16; ++j) out->scale[j] = b.scales[j];
      out->d = b.d;
      out->m = b.dmin;
      return;
    }
    case TYPE_Q3_K: {
      const auto& b = as<block_q3_k>(src);
      read_crumb_runs(b.qs, out->q);
      read_bit_runs(b.hmask, 2, out->q);
      get_scales_q3_k(b.scales, reinterpret_cast<int8_t*>(out->scale));
      out->d = b.d;
      return;
    }
    case TYPE_Q4_K: {
      const auto& b = as<block_q4_k>(src);
      read_nibble_runs(b.qs, out->q);
      read_k_scales(b, out);
      return;
    }
    case TYPE_Q5_K: {
      const auto& b = as<block_q5_k>(src);
      read_nibble_runs(b.qs, out->q);
      read_bit_runs(b.qh, 4, out->q);
      read_k_scales(b, out);
      return;
    }
    case TYPE_Q6_K:
      return read_q6_k(as<block_q6_k>(src), out);
    case TYPE_IQ4_XS: {
      const auto& b = as<block_iq4_xs>(src);
      for (int i = 0; i < 8; ++i) {
        read_nibbles(b.qs + 16 * i, out->q + 32 * i);
        const int scale = (b.scales_l[i / 2] >> 4 * (i % 2) & 15) | (b.scales_h >> 2 * i & 3) << 4;
        out->scale[i] = (uint8_t)(scale - 32);
      }
      out->d = b.d;
      return;
    }
    default:
      return;
  }
}

}  // namespace cext
