// De-quantise one block of a codebook type. Used by dequant.cpp only.
#pragma once
#include "blocks.h"

namespace cext {

void dequantize_block(const block_iq2_xxs& b, float* y);
void dequantize_block(const block_iq2_xs& b, float* y);
void dequantize_block(const block_iq2_s& b, float* y);
void dequantize_block(const block_iq3_xxs& b, float* y);
void dequantize_block(const block_iq3_s& b, float* y);
void dequantize_block(const block_iq1_s& b, float* y);
void dequantize_block(const block_iq1_m& b, float* y);

}  // namespace cext
