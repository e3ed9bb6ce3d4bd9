// Packs the rows of a file into panels. panel.h has the layout.
#include "pack.h"

#include <cstring>

#include "pack_rows.h"
#include "quant_types.h"
#include "status.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;
constexpr int MAX_STRETCH = 256;  // columns of a super-block

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// One vector that holds WIDTH bits, from bit SHIFT on, of each of COUNT quads.
template <int SHIFT, int WIDTH, int COUNT>
void write_plane(const uint8_t (*t)[QUAD_BYTES], uint8_t* dst) {
  constexpr uint64_t mask = 0x0101010101010101u * ((1u << WIDTH) - 1u);
  for (int i = 0; i < QUAD_BYTES; i += 8) {
    uint64_t bits = 0, eight;
    for (int j = 0; j < COUNT; ++j) {
      std::memcpy(&eight, t[j] + i, 8);
      bits |= (eight >> SHIFT & mask) << WIDTH * j;
    }
    std::memcpy(dst + i, &bits, 8);
  }
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
    for (int p = 0; p < 2; ++p, dst += QUAD_BYTES) {
      if (nibbles) write_plane<4, 2, 4>(t + 4 * p, dst);
      else write_plane<0, 2, 4>(t + 4 * p, dst);
    }
  }
  if (plane == PLANE_NIBBLE1) write_plane<4, 1, QUADS>(t, dst);
  if (plane == PLANE_CRUMB1) write_plane<2, 1, QUADS>(t, dst);
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

void pack_quant_panel(const PackedMatrix* m, const PanelLayout& layout, uint8_t* dst, const uint8_t* src, int64_t n_rows) {
  const int64_t stretch = row_stretch_cols(m->type), stretch_bytes = block_size_of(m->type).bytes;
  const int64_t src_row = source_row_bytes(m);
  uint8_t* record = dst + m->n_cols / BLOCK_COLS * layout.block_bytes;
  for (int64_t col = 0; col < m->n_cols; col += stretch, src += stretch_bytes, record += layout.record_bytes) {
    uint8_t quads[MAX_STRETCH / BLOCK_COLS][QUADS][QUAD_BYTES] = {};
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
  const int64_t size = block_size_of(m->type).bytes, src_row = source_row_bytes(m);
  for (int row = 0; row < n_rows; ++row)
    for (int64_t col = 0; col < m->n_cols; ++col)
      std::memcpy(dst + (col * N + row) * size, src + row * src_row + col * size, (size_t)size);
}

}  // namespace

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
  int64_t bytes = N * source_row_bytes(m);
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
    const uint8_t* from = src_rows + panel * N * source_row_bytes(m);
    const int64_t left = m->n_rows - panel * N, n_rows = left < N ? left : N;
    if (n_rows < N) std::memset(to, 0, (size_t)m->panel_bytes);
    if (layout.kind == PANEL_QUANT) pack_quant_panel(m, layout, to, from, n_rows);
    else if (layout.kind == PANEL_FLOAT) pack_float_panel(m, to, from, n_rows);
    else std::memcpy(to, from, (size_t)(n_rows * source_row_bytes(m)));
  }
  return STATUS_OK;
}

int64_t source_row_bytes(const PackedMatrix* m) {
  const BlockSize size = block_size_of(m->type);
  return m->n_cols / size.elements * size.bytes;
}

}  // namespace cext
