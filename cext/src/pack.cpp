// Packs the rows of a file into panels and reads panels back. panel.h has the layout.
#include "pack.h"

#include <cstring>

#include "blocks.h"
#include "dequant.h"
#include "half.h"
#include "pack_rows.h"
#include "quant_types.h"
#include "status.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;

// Sources of the zeros: the formulas of gguf/quants.py; the luts are its kvalues made unsigned.
struct Luts {
  uint8_t iq4[16], mxfp4[16];
  constexpr Luts() : iq4(), mxfp4() {
    for (int i = 0; i < 16; ++i) {
      iq4[i] = (uint8_t)(kvalues_iq4nl[i] + 128);
      mxfp4[i] = (uint8_t)(kvalues_mxfp4[i] + 12);
    }
  }
};
alignas(64) constexpr Luts LUTS;

constexpr PanelLayout NO_PANEL = {PANEL_NONE, 0, 0, 0, nullptr, 0, 0, 0};
constexpr PanelLayout FLOAT_PANEL = {PANEL_FLOAT, 0, 0, 0, nullptr, 0, 0, 0};
constexpr PanelLayout ROWS_PANEL = {PANEL_ROWS, 0, 0, 0, nullptr, 0, 0, 0};

constexpr PanelLayout quant_panel(int plane, int scale, int zero, const uint8_t* lut = nullptr) {
  constexpr int block_bytes[] = {256, 320, 384, 128, 192, 512};
  constexpr int record_bytes[] = {32, 64, 16, 160, 320, 288, 320};
  return {PANEL_QUANT, plane, scale, zero, lut, block_bytes[plane], scale >= SCALE_K32 ? 256 : 32, record_bytes[scale]};
}

constexpr PanelLayout Q4_0 = quant_panel(PLANE_NIBBLE, SCALE_F16, 8);
constexpr PanelLayout Q4_1 = quant_panel(PLANE_NIBBLE, SCALE_F16_MIN, 0);
constexpr PanelLayout Q5_0 = quant_panel(PLANE_NIBBLE1, SCALE_F16, 16);
constexpr PanelLayout Q5_1 = quant_panel(PLANE_NIBBLE1, SCALE_F16_MIN, 0);
constexpr PanelLayout Q8_0 = quant_panel(PLANE_BYTE, SCALE_F16, 128);
constexpr PanelLayout Q2_K = quant_panel(PLANE_CRUMB, SCALE_K16_MIN, 0);
constexpr PanelLayout Q3_K = quant_panel(PLANE_CRUMB1, SCALE_K16, 4);
constexpr PanelLayout Q4_K = quant_panel(PLANE_NIBBLE, SCALE_K32_MIN, 0);
constexpr PanelLayout Q5_K = quant_panel(PLANE_NIBBLE1, SCALE_K32_MIN, 0);
constexpr PanelLayout Q6_K = quant_panel(PLANE_NIBBLE2, SCALE_K16, 32);
constexpr PanelLayout IQ4_NL = quant_panel(PLANE_NIBBLE, SCALE_F16, 128, LUTS.iq4);
constexpr PanelLayout IQ4_XS = quant_panel(PLANE_NIBBLE, SCALE_K32, 128, LUTS.iq4);
constexpr PanelLayout MXFP4 = quant_panel(PLANE_NIBBLE, SCALE_E8M0, 12, LUTS.mxfp4);

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

int64_t row_bytes(const PackedMatrix* m) {
  const BlockSize size = block_size_of(m->type);
  return m->n_cols / size.elements * size.bytes;
}

const uint8_t* scale_records(const PackedMatrix* m, const PanelLayout& layout, const uint8_t* panel) {
  return panel + m->n_cols / BLOCK_COLS * layout.block_bytes;
}

// The planes of one block from its quads, one byte a weight.
void write_block(int plane, const uint8_t (*t)[QUAD_BYTES], uint8_t* dst) {
  if (plane == PLANE_BYTE) {
    std::memcpy(dst, t, QUADS * QUAD_BYTES);
    return;
  }
  const bool nibbles = plane <= PLANE_NIBBLE2;
  if (nibbles) {
    for (int j = 0; j < 4; ++j, dst += QUAD_BYTES)
      for (int i = 0; i < QUAD_BYTES; ++i) dst[i] = (uint8_t)((t[j][i] & 15) | t[j + 4][i] << 4);
  }
  if (!nibbles || plane == PLANE_NIBBLE2) {
    const int shift = nibbles ? 4 : 0;
    for (int p = 0; p < 2; ++p, dst += QUAD_BYTES)
      for (int i = 0; i < QUAD_BYTES; ++i) {
        int bits = 0;
        for (int j = 0; j < 4; ++j) bits |= (t[4 * p + j][i] >> shift & 3) << 2 * j;
        dst[i] = (uint8_t)bits;
      }
  }
  if (plane == PLANE_NIBBLE1 || plane == PLANE_CRUMB1) {
    const int shift = nibbles ? 4 : 2;
    for (int i = 0; i < QUAD_BYTES; ++i) {
      int bits = 0;
      for (int j = 0; j < QUADS; ++j) bits |= (t[j][i] >> shift & 1) << j;
      dst[i] = (uint8_t)bits;
    }
  }
}

// The inverse of write_block, with the lut applied.
void read_block(const PanelLayout& layout, const uint8_t* src, uint8_t (*t)[QUAD_BYTES]) {
  const int plane = layout.plane;
  if (plane == PLANE_BYTE) {
    std::memcpy(t, src, QUADS * QUAD_BYTES);
    return;
  }
  const bool nibbles = plane <= PLANE_NIBBLE2;
  if (nibbles) {
    for (int j = 0; j < 4; ++j, src += QUAD_BYTES)
      for (int i = 0; i < QUAD_BYTES; ++i) {
        t[j][i] = src[i] & 15;
        t[j + 4][i] = src[i] >> 4;
      }
  }
  if (!nibbles || plane == PLANE_NIBBLE2) {
    const int shift = nibbles ? 4 : 0;
    for (int p = 0; p < 2; ++p, src += QUAD_BYTES)
      for (int j = 0; j < 4; ++j)
        for (int i = 0; i < QUAD_BYTES; ++i) {
          const int low = nibbles ? t[4 * p + j][i] : 0;
          t[4 * p + j][i] = (uint8_t)(low | (src[i] >> 2 * j & 3) << shift);
        }
  }
  if (plane == PLANE_NIBBLE1 || plane == PLANE_CRUMB1) {
    const int shift = nibbles ? 4 : 2;
    for (int j = 0; j < QUADS; ++j)
      for (int i = 0; i < QUAD_BYTES; ++i) t[j][i] = (uint8_t)(t[j][i] | (src[i] >> j & 1) << shift);
  }
  if (layout.lut)
    for (int j = 0; j < QUADS; ++j)
      for (int i = 0; i < QUAD_BYTES; ++i) t[j][i] = layout.lut[t[j][i]];
}

void write_scales(int scale_kind, const RowStretch& from, int row, uint8_t* record) {
  const auto put16 = [&](int at, uint16_t value) { std::memcpy(record + at + 2 * row, &value, 2); };
  if (scale_kind == SCALE_E8M0) {
    record[row] = from.scale[0];
    return;
  }
  put16(0, from.d);
  int at = 32;
  if (has_min(scale_kind)) {
    put16(at, from.m);
    at += 32;
  }
  if (scale_kind < SCALE_K32) return;
  const int n = 256 / scale_cols(scale_kind);
  for (int j = 0; j < n; ++j) record[at + N * j + row] = from.scale[j];
  if (scale_kind != SCALE_K32_MIN) return;
  for (int j = 0; j < n; ++j) record[at + N * (n + j) + row] = from.min[j];
}

// Half of an E8M0 exponent's power of two: 2^(e - 128). Source: gguf.quants.MXFP4.e8m0_to_fp32_half.
float e8m0_half(uint8_t e) { return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23); }

void read_scales(int scale_kind, const uint8_t* record, int sub, int row, float* d, float* m) {
  const auto get16 = [&](int at) {
    uint16_t value;
    std::memcpy(&value, record + at + 2 * row, 2);
    return f16_to_f32(value);
  };
  *m = 0.0f;
  if (scale_kind == SCALE_E8M0) {
    *d = e8m0_half(record[row]);
    return;
  }
  const float scale = get16(0);
  switch (scale_kind) {
    case SCALE_F16:
      *d = scale;
      return;
    case SCALE_F16_MIN:
      *d = scale;
      *m = get16(32);
      return;
    case SCALE_K32:
    case SCALE_K16:
      *d = scale * (float)(int8_t)record[32 + N * sub + row];
      return;
    case SCALE_K32_MIN:
      *d = scale * (float)record[64 + N * sub + row];
      *m = -(get16(32) * (float)record[64 + N * (8 + sub) + row]);
      return;
    default:
      *d = scale * (float)(record[64 + N * sub + row] & 15);
      *m = -(get16(32) * (float)(record[64 + N * sub + row] >> 4));
  }
}

void pack_quant_panel(const PackedMatrix* m, const PanelLayout& layout, uint8_t* dst, const uint8_t* src, int64_t n_rows) {
  const int64_t stretch = row_stretch_cols(m->type), stretch_bytes = block_size_of(m->type).bytes;
  const int64_t src_row = row_bytes(m);
  uint8_t* record = dst + m->n_cols / BLOCK_COLS * layout.block_bytes;
  for (int64_t col = 0; col < m->n_cols; col += stretch, src += stretch_bytes, record += layout.record_bytes) {
    uint8_t quads[QK_K / BLOCK_COLS][QUADS][QUAD_BYTES] = {};
    for (int row = 0; row < n_rows; ++row) {
      RowStretch from;
      read_row_stretch(m->type, src + row * src_row, &from);
      write_scales(layout.scale, from, row, record);
      for (int64_t j = 0; j < stretch / 4; ++j) std::memcpy(&quads[j / QUADS][j % QUADS][4 * row], from.q + 4 * j, 4);
    }
    for (int64_t b = 0; b < stretch / BLOCK_COLS; ++b, dst += layout.block_bytes) write_block(layout.plane, quads[b], dst);
  }
}

void pack_float_panel(const PackedMatrix* m, uint8_t* dst, const uint8_t* src, int64_t n_rows) {
  const int64_t size = block_size_of(m->type).bytes, src_row = row_bytes(m);
  for (int row = 0; row < n_rows; ++row)
    for (int64_t col = 0; col < m->n_cols; ++col)
      std::memcpy(dst + (col * N + row) * size, src + row * src_row + col * size, (size_t)size);
}

}  // namespace

const PanelLayout& panel_layout(int32_t type) {
  switch (type) {
    case TYPE_F32: case TYPE_F16: case TYPE_BF16: return FLOAT_PANEL;
    case TYPE_Q4_0: return Q4_0;
    case TYPE_Q4_1: return Q4_1;
    case TYPE_Q5_0: return Q5_0;
    case TYPE_Q5_1: return Q5_1;
    case TYPE_Q8_0: return Q8_0;
    case TYPE_Q2_K: return Q2_K;
    case TYPE_Q3_K: return Q3_K;
    case TYPE_Q4_K: return Q4_K;
    case TYPE_Q5_K: return Q5_K;
    case TYPE_Q6_K: return Q6_K;
    case TYPE_IQ4_NL: return IQ4_NL;
    case TYPE_IQ4_XS: return IQ4_XS;
    case TYPE_MXFP4: return MXFP4;
    case TYPE_Q8_K: case TYPE_IQ2_XXS: case TYPE_IQ2_XS: case TYPE_IQ2_S: case TYPE_IQ3_XXS: case TYPE_IQ3_S:
    case TYPE_IQ1_S: case TYPE_IQ1_M: case TYPE_TQ1_0: case TYPE_TQ2_0: case TYPE_NVFP4: case TYPE_Q1_0: return ROWS_PANEL;
    default: return NO_PANEL;
  }
}

int64_t packed_panel_rows() { return N; }

ActKind act_kind_of(int32_t type) { return panel_layout(type).kind == PANEL_QUANT ? ACT_Q8 : ACT_F32; }

int64_t packed_bytes(int32_t type, int64_t n_rows, int64_t n_cols) {
  PackedMatrix m;
  if (packed_init(&m, type, n_rows, n_cols, nullptr) != STATUS_OK) return -1;
  return m.n_panels * m.panel_bytes;
}

int packed_init(PackedMatrix* m, int32_t type, int64_t n_rows, int64_t n_cols, const uint8_t* data) {
  const PanelLayout& layout = panel_layout(type);
  if (layout.kind == PANEL_NONE) return STATUS_BAD_TYPE;
  const BlockSize size = block_size_of(type);
  if (n_rows < 1 || n_cols < 1 || n_cols % size.elements != 0) return STATUS_BAD_ARGUMENT;
  *m = {type, n_rows, n_cols, (n_rows + N - 1) / N, 0, data};
  int64_t bytes = N * row_bytes(m);
  if (layout.kind == PANEL_QUANT)
    bytes = n_cols / BLOCK_COLS * layout.block_bytes + n_cols / layout.record_cols * layout.record_bytes;
  m->panel_bytes = round_up(bytes, QUAD_BYTES);
  return STATUS_OK;
}

int pack_panels(const PackedMatrix* m, uint8_t* dst, const uint8_t* src_rows, int64_t panel0, int64_t panel1) {
  const PanelLayout& layout = panel_layout(m->type);
  if (panel0 < 0 || panel1 > m->n_panels) return STATUS_BAD_ARGUMENT;
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    uint8_t* to = dst + panel * m->panel_bytes;
    const uint8_t* from = src_rows + panel * N * row_bytes(m);
    const int64_t left = m->n_rows - panel * N, n_rows = left < N ? left : N;
    if (n_rows < N) std::memset(to, 0, (size_t)m->panel_bytes);
    if (layout.kind == PANEL_QUANT) pack_quant_panel(m, layout, to, from, n_rows);
    else if (layout.kind == PANEL_FLOAT) pack_float_panel(m, to, from, n_rows);
    else std::memcpy(to, from, (size_t)(n_rows * row_bytes(m)));
  }
  return STATUS_OK;
}

void read_panel_block(const PackedMatrix* m, int64_t panel, int64_t block, PanelBlock* out) {
  const PanelLayout& layout = panel_layout(m->type);
  const uint8_t* data = m->data + panel * m->panel_bytes;
  read_block(layout, data + block * layout.block_bytes, reinterpret_cast<uint8_t(*)[QUAD_BYTES]>(out->q));
  const int64_t per_record = layout.record_cols / BLOCK_COLS;
  const uint8_t* record = scale_records(m, layout, data) + block / per_record * layout.record_bytes;
  const int subs = BLOCK_COLS / scale_cols(layout.scale), first = (int)(block % per_record) * subs;
  for (int half = 0; half < 2; ++half)
    for (int row = 0; row < N; ++row)
      read_scales(layout.scale, record, first + half * (subs - 1), row, &out->d[half][row], &out->m[half][row]);
}

void read_panel_floats(const PackedMatrix* m, int64_t panel, int64_t col0, int64_t col1, float* out) {
  const uint8_t* data = m->data + panel * m->panel_bytes;
  const BlockSize size = block_size_of(m->type);
  if (panel_layout(m->type).kind == PANEL_FLOAT) {
    dequantize_rows(m->type, data + col0 * N * size.bytes, out, (col1 - col0) * N);
    return;
  }
  float values[QK_K];
  for (int row = 0; row < N; ++row)
    for (int64_t col = col0; col < col1; col += size.elements) {
      dequantize_rows(m->type, data + row * row_bytes(m) + col / size.elements * size.bytes, values, size.elements);
      for (int64_t i = 0; i < size.elements; ++i) out[(col - col0 + i) * N + row] = values[i];
    }
}

int unpack_row(const PackedMatrix* m, int64_t row, float* out) {
  if (row < 0 || row >= m->n_rows) return STATUS_BAD_ARGUMENT;
  const PanelLayout& layout = panel_layout(m->type);
  const int64_t panel = row / N, r = row % N;
  const uint8_t* data = m->data + panel * m->panel_bytes;
  if (layout.kind == PANEL_ROWS) return dequantize_rows(m->type, data + r * row_bytes(m), out, m->n_cols);
  if (layout.kind == PANEL_FLOAT) {
    const int64_t size = block_size_of(m->type).bytes;
    for (int64_t col = 0; col < m->n_cols; ++col) dequantize_rows(m->type, data + (col * N + r) * size, out + col, 1);
    return STATUS_OK;
  }
  PanelBlock block;
  for (int64_t b = 0; b < m->n_cols / BLOCK_COLS; ++b) {
    read_panel_block(m, panel, b, &block);
    for (int i = 0; i < BLOCK_COLS; ++i) {
      const int q = block.q[i / 4 * QUAD_BYTES + 4 * r + i % 4] - layout.zero;
      const float value = block.d[i / 16][r] * (float)q;
      out[b * BLOCK_COLS + i] = has_min(layout.scale) ? value + block.m[i / 16][r] : value;
    }
  }
  return STATUS_OK;
}

}  // namespace cext
