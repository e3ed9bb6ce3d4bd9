// Reads a packed panel back, block by block: what the scalar kernels multiply.
#pragma once
#include <cstdint>

#include "matmul.h"
#include "panel.h"

namespace cext {

struct PanelBlock {                        // 32 columns of 16 rows
  uint8_t q[QUADS * QUAD_BYTES];           // weights in quads (panel.h), the lut applied
  float d[2][PANEL_ROWS_N];                // scale of columns 0..15 and of 16..31
  float m[2][PANEL_ROWS_N];                // what is added to each value; zeros where the type has no minima
};

// Bytes of one row of the matrix as it lies in a file.
int64_t source_row_bytes(const PackedMatrix* m);

// Block `block` of a PANEL_QUANT panel: value = d (q - zero) + m.
void read_panel_block(const PackedMatrix* m, int64_t panel, int64_t block, PanelBlock* out);

// Columns [col0, col1) of a PANEL_FLOAT or PANEL_ROWS panel as f32[col1 - col0][16]; col0 and col1 on borders of the type's
// blocks. Rows past n_rows give zeros.
void read_panel_floats(const PackedMatrix* m, int64_t panel, int64_t col0, int64_t col1, float* out);

}  // namespace cext
