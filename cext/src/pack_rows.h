// One row's stretch of quantised weights as small whole numbers: the step between a file's blocks and the panels.
#pragma once
#include <cstdint>

namespace cext {

struct RowStretch {      // one block of 32 columns, or one super-block of 256
  uint8_t q[256];        // weight plus the layout's zero; for layouts with a lut the index into it
  uint16_t d, m;         // f16 bits: scale, and minimum (or dmin)
  uint8_t scale[16];     // sub-block scales (two's complement where signed), or the E8M0 exponent
  uint8_t min[16];       // sub-block minima
};

// Columns of a stretch of this type: 32 or 256.
int row_stretch_cols(int32_t type);
// Read the block at src. For PANEL_QUANT types only.
void read_row_stretch(int32_t type, const uint8_t* src, RowStretch* out);

}  // namespace cext
