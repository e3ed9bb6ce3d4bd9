// Which layout each tensor type has.
#include "panel.h"

#include "blocks.h"
#include "quant_types.h"

namespace cext {
namespace {

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

}  // namespace cext
