// Reads panels back: whole blocks for the scalar products, single rows for gathering. panel.h has the layout.
#include <cstring>

#include "dequant.h"
#include "half.h"
#include "pack.h"
#include "quant_types.h"
#include "status.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;
constexpr int MAX_BLOCK = 256;  // values in the largest block of any type

// A block's quads, one byte a weight, with the lut applied.
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

uint32_t load32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

// One row of a block, four columns at a time: a quad holds four bytes of each row.
void read_row_of_block(const PanelLayout& layout, const uint8_t* src, int row, uint8_t* q) {
  const int plane = layout.plane;
  const bool nibbles = plane <= PLANE_NIBBLE2;
  src += 4 * row;
  uint32_t t[QUADS];
  for (int j = 0; j < QUADS; ++j)
    t[j] = plane == PLANE_BYTE ? load32(src + QUAD_BYTES * j)
           : nibbles           ? load32(src + QUAD_BYTES * (j % 4)) >> (j < 4 ? 0 : 4) & 0x0f0f0f0fu
                               : load32(src + QUAD_BYTES * (j / 4)) >> 2 * (j % 4) & 0x03030303u;
  if (plane == PLANE_NIBBLE2)
    for (int j = 0; j < QUADS; ++j) t[j] |= (load32(src + QUAD_BYTES * (4 + j / 4)) >> 2 * (j % 4) & 0x03030303u) << 4;
  if (plane == PLANE_NIBBLE1 || plane == PLANE_CRUMB1) {
    const uint32_t bits = load32(src + QUAD_BYTES * (nibbles ? 4 : 2));
    for (int j = 0; j < QUADS; ++j) t[j] |= (bits >> j & 0x01010101u) << (nibbles ? 4 : 2);
  }
  std::memcpy(q, t, sizeof t);  // a quad's bytes are in memory order, whatever the CPU's
  if (layout.lut)
    for (int i = 0; i < BLOCK_COLS; ++i) q[i] = layout.lut[q[i]];
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

const uint8_t* scale_records(const PackedMatrix* m, const PanelLayout& layout, const uint8_t* panel) {
  return panel + m->n_cols / BLOCK_COLS * layout.block_bytes;
}

}  // namespace

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
  float values[MAX_BLOCK];
  for (int row = 0; row < N; ++row)
    for (int64_t col = col0; col < col1; col += size.elements) {
      dequantize_rows(m->type, data + row * source_row_bytes(m) + col / size.elements * size.bytes, values, size.elements);
      for (int64_t i = 0; i < size.elements; ++i) out[(col - col0 + i) * N + row] = values[i];
    }
}

int unpack_row(const PackedMatrix* m, int64_t row, float* out) {
  if (row < 0 || row >= m->n_rows) return STATUS_BAD_ARGUMENT;
  const PanelLayout& layout = panel_layout(m->type);
  const int64_t panel = row / N, r = row % N;
  const uint8_t* data = m->data + panel * m->panel_bytes;
  if (layout.kind == PANEL_ROWS) return dequantize_rows(m->type, data + r * source_row_bytes(m), out, m->n_cols);
  if (layout.kind == PANEL_FLOAT) {
    const int64_t size = block_size_of(m->type).bytes;
    for (int64_t col = 0; col < m->n_cols; ++col) dequantize_rows(m->type, data + (col * N + r) * size, out + col, 1);
    return STATUS_OK;
  }
  const int64_t per_record = layout.record_cols / BLOCK_COLS;
  const int subs = BLOCK_COLS / scale_cols(layout.scale);
  const uint8_t* records = scale_records(m, layout, data);
  for (int64_t b = 0; b < m->n_cols / BLOCK_COLS; ++b, out += BLOCK_COLS) {
    uint8_t q[BLOCK_COLS];
    read_row_of_block(layout, data + b * layout.block_bytes, (int)r, q);
    for (int sub = 0; sub < subs; ++sub) {
      float d, minimum;
      const uint8_t* record = records + b / per_record * layout.record_bytes;
      read_scales(layout.scale, record, (int)(b % per_record) * subs + sub, (int)r, &d, &minimum);
      for (int i = BLOCK_COLS / subs * sub; i < BLOCK_COLS / subs * (sub + 1); ++i) {
        const float value = d * (float)(q[i] - layout.zero);
        out[i] = has_min(layout.scale) ? value + minimum : value;
      }
    }
  }
  return STATUS_OK;
}

}  // namespace cext
