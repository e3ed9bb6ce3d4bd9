// How a weight matrix lies in memory for multiplication: panels of 16 output rows, blocks of 32 columns.
//
// PANEL_QUANT: the panel's blocks of weights one after another, then its scale records.
//   A block holds 8 k-quads (4 neighbouring columns). A quad is 64 bytes: byte 4 row + i is column 4 quad + i of that row,
//   as `vpdpbusd` wants it. Weights are unsigned: what the file's formula multiplies is (weight - zero).
//     PLANE_NIBBLE   64-byte vectors j = 0..3: low nibbles quad j, high nibbles quad j + 4
//     PLANE_NIBBLE1  the same, then one vector whose bit j is the fifth bit of quad j
//     PLANE_NIBBLE2  the same as PLANE_NIBBLE, then vectors p = 0, 1: bits 2i, 2i+1 are bits 4, 5 of quad 4 p + i
//     PLANE_CRUMB    vectors p = 0, 1: bits 2i, 2i+1 are quad 4 p + i
//     PLANE_CRUMB1   the same, then one vector whose bit j is the third bit of quad j
//     PLANE_BYTE     8 quads
//   A scale record belongs to one block of 32, or to a super-block of 256 columns; each field has one entry per row:
//     SCALE_F16      f16 d[16]                              SCALE_E8M0     u8 exponent[16]
//     SCALE_F16_MIN  f16 d[16], f16 m[16]
//     SCALE_K32      f16 d[16], s8 scale[8][16]             SCALE_K32_MIN  f16 d[16], dmin[16], u8 scale[8][16], min[8][16]
//     SCALE_K16      f16 d[16], s8 scale[16][16]            SCALE_K16_MIN  f16 d[16], dmin[16], u8 scale|min << 4 [16][16]
// PANEL_FLOAT: [n_cols][16] values of the file's type. PANEL_ROWS: the 16 rows as in the file, dequantised when multiplied.
#pragma once
#include <cstdint>

namespace cext {

constexpr int PANEL_ROWS_N = 16;
constexpr int BLOCK_COLS = 32;
constexpr int QUADS = 8;
constexpr int QUAD_BYTES = 64;

enum PanelKind : int { PANEL_NONE, PANEL_QUANT, PANEL_FLOAT, PANEL_ROWS };
enum PlaneKind : int { PLANE_NIBBLE, PLANE_NIBBLE1, PLANE_NIBBLE2, PLANE_CRUMB, PLANE_CRUMB1, PLANE_BYTE };
enum ScaleKind : int {
  SCALE_F16, SCALE_F16_MIN, SCALE_E8M0, SCALE_K32, SCALE_K32_MIN, SCALE_K16, SCALE_K16_MIN
};

struct PanelLayout {
  int kind;             // PanelKind
  int plane, scale;     // PlaneKind, ScaleKind; PANEL_QUANT only
  int zero;             // what is subtracted from every weight
  const uint8_t* lut;   // u8[16]: the weight a nibble stands for, or null where it stands for itself
  int block_bytes;      // of one block's weights
  int record_cols;      // columns of one scale record: 32 or 256
  int record_bytes;
};

// The layout of a tensor type; kind PANEL_NONE where it is no weight type.
const PanelLayout& panel_layout(int32_t type);

// Columns that share one scale: 16 or 32.
static inline int scale_cols(int scale_kind) { return scale_kind >= SCALE_K16 ? 16 : 32; }
static inline bool has_min(int scale_kind) {
  return scale_kind == SCALE_F16_MIN || scale_kind == SCALE_K32_MIN || scale_kind == SCALE_K16_MIN;
}

}  // namespace cext
