// The products with AVX-512: int8 by VNNI, f32 by FMA.
//
// One token streams the panels as they are packed. More tokens unpack a strip of two panels and up to STRIP_COLS columns to
// bytes once and multiply it with tiles of tokens; 2 rows of registers times 6 tokens keep all sums in registers.
#include "half.h"
#include "intrinsics.h"
#include "matmul_impl.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;
// NUMERICS: int32 sums start at the bits of the f32 1.5 * 2^23, so that the finished sum read as f32 is 1.5 * 2^23 + dot, exactly
// (|dot| < 2^22). fma(that, d, -1.5 * 2^23 * d) is then dot * d, rounded once: -1.5 * 2^23 * d is exact, for d has at most
// 18 significant bits (a half float times a scale of 7 bits).
constexpr float MAGIC = 12582912.0f;

CEXT_INLINE __m512i load(const void* p) { return _mm512_loadu_si512(p); }
CEXT_INLINE __m512i broadcast4(const int8_t* p) {
  int32_t value;
  __builtin_memcpy(&value, p, 4);
  return _mm512_set1_epi32(value);
}

// The eight quads of a block as bytes.
//
// SHIFTED leaves the plain high nibbles in their place: quads 4 to 7 are sixteen times what they stand for.
template <int PLANE, bool LUT, bool SHIFTED = false>
CEXT_INLINE void block_quads(const uint8_t* src, __m512i lut, __m512i* w) {
  if constexpr (PLANE == PLANE_BYTE) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = load(src + 64 * j);
    return;
  }
  constexpr bool nibbles = PLANE <= PLANE_NIBBLE2;
  const __m512i low = _mm512_set1_epi8(15);
  if constexpr (nibbles) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i x = load(src + 64 * j);
      w[j] = _mm512_and_si512(x, low);
      w[j + 4] = SHIFTED ? _mm512_andnot_si512(low, x) : _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
    }
    src += 256;
  }
  if constexpr (PLANE == PLANE_NIBBLE1) {
    const __m512i bits = load(src), bit = _mm512_set1_epi8(16);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 4 ? _mm512_slli_epi16(bits, 4 - j < 0 ? 0 : 4 - j) : _mm512_srli_epi16(bits, j - 4 < 0 ? 0 : j - 4);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xF8);  // a | (b & c)
    }
  }
  if constexpr (PLANE == PLANE_NIBBLE2 || !nibbles) {
    const __m512i mask = _mm512_set1_epi8(nibbles ? 0x30 : 3);
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const __m512i bits = load(src + 64 * p);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int left = (nibbles ? 4 : 0) - 2 * i;
        const __m512i moved = left >= 0 ? _mm512_slli_epi16(bits, left < 0 ? 0 : left) : _mm512_srli_epi16(bits, left < 0 ? -left : 0);
        if constexpr (nibbles) w[4 * p + i] = _mm512_ternarylogic_epi32(w[4 * p + i], moved, mask, 0xF8);
        else w[4 * p + i] = _mm512_and_si512(moved, mask);
      }
    }
    src += 128;
  }
  if constexpr (PLANE == PLANE_CRUMB1) {
    const __m512i bits = load(src), bit = _mm512_set1_epi8(4);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m512i moved = j < 2 ? _mm512_slli_epi16(bits, j < 2 ? 2 - j : 0) : _mm512_srli_epi16(bits, j < 2 ? 0 : j - 2);
      w[j] = _mm512_ternarylogic_epi32(w[j], moved, bit, 0xF8);
    }
  }
  if constexpr (LUT) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = _mm512_shuffle_epi8(lut, w[j]);
  }
}

CEXT_INLINE __m512 load_f16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
CEXT_INLINE __m512 load_s8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
CEXT_INLINE __m512i load_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }

// Scale and minimum of sub-block `sub` (of 32 columns, or 16) of a scale record.
template <int SCALE>
CEXT_INLINE void load_scale(const uint8_t* record, int sub, __m512* d, __m512* m) {
  if constexpr (SCALE == SCALE_E8M0) {
    const __m512i e = load_u8(record), two = _mm512_set1_epi32(2);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    *d = _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, two), small));
    return;
  }
  const __m512 base = load_f16(record);
  if constexpr (SCALE == SCALE_F16 || SCALE == SCALE_F16_MIN) {
    *d = base;
    if constexpr (SCALE == SCALE_F16_MIN) *m = load_f16(record + 32);
  } else if constexpr (SCALE == SCALE_K32 || SCALE == SCALE_K16) {
    *d = _mm512_mul_ps(base, load_s8(record + 32 + N * sub));
  } else {
    const __m512 base_min = _mm512_sub_ps(_mm512_setzero_ps(), load_f16(record + 32));
    const __m512i scale = load_u8(record + 64 + N * sub);
    if constexpr (SCALE == SCALE_K32_MIN) {
      *d = _mm512_mul_ps(base, _mm512_cvtepi32_ps(scale));
      *m = _mm512_mul_ps(base_min, _mm512_cvtepi32_ps(load_u8(record + 64 + N * (8 + sub))));
    } else {
      *d = _mm512_mul_ps(base, _mm512_cvtepi32_ps(_mm512_and_si512(scale, _mm512_set1_epi32(15))));
      *m = _mm512_mul_ps(base_min, _mm512_cvtepi32_ps(_mm512_srli_epi32(scale, 4)));
    }
  }
}

template <int SCALE>
constexpr int SUBS = SCALE >= SCALE_K16 ? 2 : 1;  // scales in a block of 32
template <int SCALE>
constexpr bool HAS_MIN = SCALE == SCALE_F16_MIN || SCALE == SCALE_K32_MIN || SCALE == SCALE_K16_MIN;
template <int SCALE>
constexpr int RECORD_BLOCKS = SCALE >= SCALE_K32 ? 8 : 1;
template <int SCALE>
constexpr int RECORD_BYTES = SCALE == SCALE_F16       ? 32
                             : SCALE == SCALE_F16_MIN ? 64
                             : SCALE == SCALE_E8M0    ? 16
                             : SCALE == SCALE_K32     ? 160
                             : SCALE == SCALE_K16     ? 288
                                                      : 320;
template <int PLANE>
constexpr int BLOCK_BYTES = PLANE == PLANE_NIBBLE    ? 256
                            : PLANE == PLANE_NIBBLE1 ? 320
                            : PLANE == PLANE_NIBBLE2 ? 384
                            : PLANE == PLANE_CRUMB   ? 128
                            : PLANE == PLANE_CRUMB1  ? 192
                                                     : 512;

CEXT_INLINE __mmask16 rows_mask(const PackedMatrix* m, int64_t panel) {
  const int64_t left = m->n_rows - panel * N;
  return left >= N ? (__mmask16)0xFFFF : (__mmask16)((1u << left) - 1u);
}

// What the sums of one token's n scale blocks start at, as the bits of MAGIC - zero * sum. Whole vectors are read and written.
CEXT_INLINE void start_sums(const float* sum, int64_t n, int zero, float* out) {
  const __m512 z = _mm512_set1_ps((float)-zero), magic = _mm512_set1_ps(MAGIC);
  for (int64_t i = 0; i < n; i += N) _mm512_store_ps(out + i, _mm512_fmadd_ps(_mm512_loadu_ps(sum + i), z, magic));
}

// ---- one token ----

// How far ahead of the multiplication weights are fetched into L2 (memory's latency at its full speed) and into L1.
constexpr int64_t AHEAD_BYTES = 16384;
constexpr int64_t NEAR_BYTES = 2048;

struct OneToken {
  const int8_t* q;
  const float *d, *s;     // s: per scale block
  const float* start;     // per scale block: start_sums
  int64_t n_blocks;
};

template <int PLANE, int SCALE, bool LUT>
void one_token(const PackedMatrix* m, int64_t panel0, int64_t panel1, const OneToken& a, __m512i lut, float* out) {
  constexpr int subs = SUBS<SCALE>, quads = QUADS / subs;
  constexpr int step = BLOCK_BYTES<PLANE> + RECORD_BYTES<SCALE> / RECORD_BLOCKS<SCALE>;
  const __m512 magic = _mm512_set1_ps(-MAGIC);
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const uint8_t* block = m->data + panel * m->panel_bytes;
    const uint8_t* ahead = block + AHEAD_BYTES;  // runs through the panel's weights and scales as they lie
    const uint8_t* record = block + a.n_blocks * BLOCK_BYTES<PLANE>;
    __m512 acc = _mm512_setzero_ps();
    for (int64_t b0 = 0; b0 < a.n_blocks; b0 += RECORD_BLOCKS<SCALE>, record += RECORD_BYTES<SCALE>) {
#pragma GCC unroll 8
      for (int i = 0; i < RECORD_BLOCKS<SCALE>; ++i, block += BLOCK_BYTES<PLANE>) {
        const int64_t b = b0 + i;
        const int8_t* q = a.q + b * BLOCK_COLS;
#pragma GCC unroll 9
        for (int at = 0; at < step; at += 64) _mm_prefetch((const char*)ahead + at, _MM_HINT_T1);
        ahead += step;
#pragma GCC unroll 8
        for (int at = 0; at < BLOCK_BYTES<PLANE>; at += 64) _mm_prefetch((const char*)block + NEAR_BYTES + at, _MM_HINT_T0);
        __m512i w[QUADS];
        constexpr bool shifted = PLANE == PLANE_NIBBLE && !LUT;
        block_quads<PLANE, LUT, shifted>(block, lut, w);
        __m512 minimum[2] = {};
#pragma GCC unroll 2
        for (int sub = 0; sub < subs; ++sub) {
          __m512i low = _mm512_castps_si512(_mm512_set1_ps(a.start[b * subs + sub])), high = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int j = sub * quads; j < sub * quads + quads / 2; ++j) {
            low = _mm512_dpbusd_epi32(low, w[j], broadcast4(q + 4 * j));
            high = _mm512_dpbusd_epi32(high, w[j + quads / 2], broadcast4(q + 4 * (j + quads / 2)));
          }
          if constexpr (shifted) high = _mm512_srai_epi32(high, 4);
          __m512 d;
          load_scale<SCALE>(record, i * subs + sub, &d, &minimum[sub]);
          const __m512 dot = _mm512_castsi512_ps(_mm512_add_epi32(low, high));
          const __m512 scaled = _mm512_fmadd_ps(dot, d, _mm512_mul_ps(magic, d));
          acc = _mm512_fmadd_ps(scaled, _mm512_set1_ps(a.d[b]), acc);
        }
        if constexpr (HAS_MIN<SCALE>) {
#pragma GCC unroll 2
          for (int sub = 0; sub < subs; ++sub)
            acc = _mm512_fmadd_ps(minimum[sub], _mm512_set1_ps(a.s[b * subs + sub]), acc);
        }
      }
    }
    _mm512_mask_storeu_ps(out + panel * N, rows_mask(m, panel), acc);
  }
}

// ---- many tokens ----

// Blocks [b0, b1) of a panel as bytes (dst null: they are bytes already), and their scales as f32[3][16]: d, -MAGIC d, m.
template <int PLANE, int SCALE, bool LUT>
void unpack_strip(const PackedMatrix* m, int64_t panel, int64_t b0, int64_t b1, __m512i lut, uint8_t* dst, float* scales) {
  const int64_t n_blocks = m->n_cols / BLOCK_COLS;
  const uint8_t* data = m->data + panel * m->panel_bytes;
  if constexpr (PLANE != PLANE_BYTE) {
    for (int64_t b = b0; b < b1; ++b, dst += QUADS * QUAD_BYTES) {
      __m512i w[QUADS];
      block_quads<PLANE, LUT>(data + b * BLOCK_BYTES<PLANE>, lut, w);
#pragma GCC unroll 8
      for (int j = 0; j < QUADS; ++j) _mm512_store_si512(dst + QUAD_BYTES * j, w[j]);
    }
  }
  const uint8_t* record = data + n_blocks * BLOCK_BYTES<PLANE> + b0 / RECORD_BLOCKS<SCALE> * RECORD_BYTES<SCALE>;
  const __m512 magic = _mm512_set1_ps(-MAGIC);
  for (int64_t b = b0; b < b1; b += RECORD_BLOCKS<SCALE>, record += RECORD_BYTES<SCALE>)
    for (int sub = 0; sub < RECORD_BLOCKS<SCALE> * SUBS<SCALE>; ++sub, scales += 3 * N) {
      __m512 d, minimum = _mm512_setzero_ps();
      load_scale<SCALE>(record, sub, &d, &minimum);
      _mm512_store_ps(scales, d);
      _mm512_store_ps(scales + N, _mm512_mul_ps(magic, d));
      if constexpr (HAS_MIN<SCALE>) _mm512_store_ps(scales + 2 * N, minimum);
    }
}

struct Tile {                // what a tile of tokens multiplies with
  const uint8_t* w[2];       // quads of the strip's panels
  const float* scales[2];    // f32[n_subs][3][16] each
  int64_t n_blocks;
  __mmask16 mask[2];
  bool is_first;             // sums start at zero, else at what `out` holds
};

// NT tokens times R panels. q, d, s: of the first token and the strip's first block. start: f32[NT][ld_start], used where
// the type has a zero (it has none where it has minima).
template <int NT, int R, int SUBS, bool MIN>
void mul_tile(const Tile& tile, const int8_t* q, int64_t ld_q, const float* d, int64_t ld_d, const float* s, int64_t ld_s,
              const float* start, int64_t ld_start, float* out, int64_t ld_out) {
  constexpr int quads = QUADS / SUBS;
  __m512 acc[NT][R];
#pragma GCC unroll 16
  for (int t = 0; t < NT; ++t)
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
      acc[t][r] = tile.is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(tile.mask[r], out + t * ld_out + r * N);
#pragma GCC unroll 16
  for (int t = 0; t < NT; ++t)
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) _mm_prefetch((const char*)(out + t * ld_out + r * N + N - 1), _MM_HINT_T0);
  const uint8_t* w0 = tile.w[0];
  const uint8_t* w1 = tile.w[R - 1];
  const float* scales0 = tile.scales[0];
  const float* scales1 = tile.scales[R - 1];
  const __m512i magic = _mm512_castps_si512(_mm512_set1_ps(MAGIC));
  for (int64_t b = 0; b < tile.n_blocks; ++b) {
#pragma GCC unroll 2
    for (int sub = 0; sub < SUBS; ++sub) {
      __m512i dot[NT][R];
#pragma GCC unroll 16
      for (int t = 0; t < NT; ++t)
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r) dot[t][r] = MIN ? magic : _mm512_castps_si512(_mm512_set1_ps(start[t * ld_start + sub]));
#pragma GCC unroll 8
      for (int j = 0; j < quads; ++j) {
        const __m512i w[2] = {load(w0), load(w1)};
        w0 += QUAD_BYTES;
        w1 += QUAD_BYTES;
#pragma GCC unroll 16
        for (int t = 0; t < NT; ++t) {
          const __m512i a = broadcast4(q + t * ld_q + 4 * (sub * quads + j));
#pragma GCC unroll 2
          for (int r = 0; r < R; ++r) dot[t][r] = _mm512_dpbusd_epi32(dot[t][r], w[r], a);
        }
      }
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r) {
        const float* scale = (r ? scales1 : scales0) + 3 * N * sub;
        const __m512 dw = _mm512_load_ps(scale), offset = _mm512_load_ps(scale + N);
#pragma GCC unroll 16
        for (int t = 0; t < NT; ++t) {
          const __m512 scaled = _mm512_fmadd_ps(_mm512_castsi512_ps(dot[t][r]), dw, offset);
          acc[t][r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(d[t * ld_d]), acc[t][r]);
        }
      }
    }
    if constexpr (MIN) {
#pragma GCC unroll 2
      for (int sub = 0; sub < SUBS; ++sub)
#pragma GCC unroll 2
        for (int r = 0; r < R; ++r) {
          const __m512 minimum = _mm512_load_ps((r ? scales1 : scales0) + 3 * N * sub + 2 * N);
#pragma GCC unroll 16
          for (int t = 0; t < NT; ++t) acc[t][r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(s[t * ld_s + sub]), acc[t][r]);
        }
    }
    scales0 += 3 * N * SUBS;
    scales1 += 3 * N * SUBS;
    start += SUBS;
    q += BLOCK_COLS;
    ++d;
    s += SUBS;
  }
#pragma GCC unroll 16
  for (int t = 0; t < NT; ++t)
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) _mm512_mask_storeu_ps(out + t * ld_out + r * N, tile.mask[r], acc[t][r]);
}

constexpr int TILE_TOKENS = 6;

template <int NT, int SUBS, bool MIN>
CEXT_INLINE void mul_tokens(const Tile& tile, int n_panels, const ActQ8* act, int64_t t, int64_t b0, int zero, float* out,
                            int64_t ld_out) {
  constexpr int ld_start = (STRIP_BLOCKS * SUBS + N - 1) / N * N;
  alignas(64) float start[MIN ? 1 : NT * ld_start];
  const int64_t ld = act->n_blocks * SUBS;
  const float* sums = (SUBS == 2 ? act->sum16 : act->sum) + t * ld + b0 * SUBS;
  for (int i = 0; i < NT && !MIN; ++i) start_sums(sums + i * ld, tile.n_blocks * SUBS, zero, start + i * ld_start);
  const int8_t* q = act->q + t * act->ld_q + b0 * BLOCK_COLS;
  const float* d = act->d + t * act->n_blocks + b0;
  const float* s = (SUBS == 2 ? act->s16 : act->s) + t * ld + b0 * SUBS;
  if (n_panels == 2) mul_tile<NT, 2, SUBS, MIN>(tile, q, act->ld_q, d, act->n_blocks, s, ld, start, ld_start, out, ld_out);
  else mul_tile<NT, 1, SUBS, MIN>(tile, q, act->ld_q, d, act->n_blocks, s, ld, start, ld_start, out, ld_out);
}

template <int PLANE, int SCALE, bool LUT>
void many_tokens(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, __m512i lut,
                 int zero, float* out, int64_t ld_out, uint8_t* scratch) {
  constexpr int subs = SUBS<SCALE>;
  constexpr bool with_min = HAS_MIN<SCALE>;
  const int64_t n_blocks = m->n_cols / BLOCK_COLS, step = strip_blocks(n_blocks, RECORD_BLOCKS<SCALE>);
  float* scales = reinterpret_cast<float*>(scratch + SCRATCH_WEIGHTS);  // SAFETY: scratch is aligned to 64 bytes
  for (int64_t panel = panel0; panel < panel1; panel += STRIP_PANELS) {
    const int n_panels = panel1 - panel < STRIP_PANELS ? 1 : STRIP_PANELS;
    for (int64_t b0 = 0; b0 < n_blocks; b0 += step) {
      Tile tile;
      tile.n_blocks = n_blocks - b0 < step ? n_blocks - b0 : step;
      tile.is_first = b0 == 0;
      for (int r = 0; r < n_panels; ++r) {
        uint8_t* bytes = scratch + r * (STRIP_COLS * N);
        float* f = scales + r * (STRIP_BLOCKS * 2 * 3 * N);
        unpack_strip<PLANE, SCALE, LUT>(m, panel + r, b0, b0 + tile.n_blocks, lut, bytes, f);
        tile.w[r] = PLANE == PLANE_BYTE ? m->data + (panel + r) * m->panel_bytes + b0 * (QUADS * QUAD_BYTES) : bytes;
        tile.scales[r] = f;
        tile.mask[r] = rows_mask(m, panel + r);
      }
      if (n_panels == 1) {
        tile.w[1] = tile.w[0];
        tile.scales[1] = tile.scales[0];
        tile.mask[1] = 0;
      }
      int64_t t = t0;
      float* to = out + panel * N;
      for (; t + TILE_TOKENS <= t1; t += TILE_TOKENS)
        mul_tokens<TILE_TOKENS, subs, with_min>(tile, n_panels, act, t, b0, zero, to + t * ld_out, ld_out);
      for (; t + 2 <= t1; t += 2) mul_tokens<2, subs, with_min>(tile, n_panels, act, t, b0, zero, to + t * ld_out, ld_out);
      for (; t < t1; ++t) mul_tokens<1, subs, with_min>(tile, n_panels, act, t, b0, zero, to + t * ld_out, ld_out);
    }
  }
}

template <int PLANE, int SCALE, bool LUT>
void mul_type(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
              int64_t ld_out, void* scratch) {
  const PanelLayout& layout = panel_layout(m->type);
  const __m512i lut =
      LUT ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)layout.lut)) : _mm512_setzero_si512();
  if (t1 - t0 > 1) {
    many_tokens<PLANE, SCALE, LUT>(m, panel0, panel1, act, t0, t1, lut, layout.zero, out, ld_out, (uint8_t*)scratch);
    return;
  }
  if (t1 <= t0) return;
  constexpr int subs = SUBS<SCALE>;
  float* start = (float*)((uint8_t*)scratch + SCRATCH_WEIGHTS + SCRATCH_SCALES);
  const int64_t n = act->n_blocks * subs;
  start_sums((subs == 2 ? act->sum16 : act->sum) + t0 * n, n, layout.zero, start);
  const OneToken a = {act->q + t0 * act->ld_q, act->d + t0 * act->n_blocks, (subs == 2 ? act->s16 : act->s) + t0 * n, start,
                      act->n_blocks};
  one_token<PLANE, SCALE, LUT>(m, panel0, panel1, a, lut, out + t0 * ld_out);
}

struct Entry {
  int plane, scale;
  bool lut;
  void (*mul)(const PackedMatrix*, int64_t, int64_t, const ActQ8*, int64_t, int64_t, float*, int64_t, void*);
};
template <int PLANE, int SCALE, bool LUT = false>
constexpr Entry entry() {
  return {PLANE, SCALE, LUT, mul_type<PLANE, SCALE, LUT>};
}
constexpr Entry ENTRIES[] = {
    entry<PLANE_NIBBLE, SCALE_F16>(),       entry<PLANE_NIBBLE, SCALE_F16_MIN>(),   entry<PLANE_NIBBLE1, SCALE_F16>(),
    entry<PLANE_NIBBLE1, SCALE_F16_MIN>(),  entry<PLANE_BYTE, SCALE_F16>(),         entry<PLANE_CRUMB, SCALE_K16_MIN>(),
    entry<PLANE_CRUMB1, SCALE_K16>(),       entry<PLANE_NIBBLE, SCALE_K32_MIN>(),   entry<PLANE_NIBBLE1, SCALE_K32_MIN>(),
    entry<PLANE_NIBBLE2, SCALE_K16>(),      entry<PLANE_NIBBLE, SCALE_F16, true>(), entry<PLANE_NIBBLE, SCALE_K32, true>(),
    entry<PLANE_NIBBLE, SCALE_E8M0, true>()};

void mul_q8(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
            int64_t ld_out, void* scratch) {
  const PanelLayout& layout = panel_layout(m->type);
  for (const Entry& e : ENTRIES)
    if (e.plane == layout.plane && e.scale == layout.scale && e.lut == (layout.lut != nullptr))
      return e.mul(m, panel0, panel1, act, t0, t1, out, ld_out, scratch);
}

// ---- activations ----

void quantize_rows(const float* x, int64_t ldx, const ActQ8* dst, int64_t t0, int64_t t1) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t t = t0; t < t1; ++t)
    for (int64_t b = 0; b < dst->n_blocks; ++b) {
      const int64_t at = t * dst->n_blocks + b, col = b * BLOCK_COLS, left = dst->n_cols - col;
      const uint32_t mask = left >= BLOCK_COLS ? 0xFFFFFFFFu : (1u << left) - 1u;
      const float* from = x + t * ldx + col;
      const __m512 x0 = _mm512_maskz_loadu_ps((__mmask16)mask, from);
      const __m512 x1 = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + N);
      // NUMERICS: the largest |x| by its bits, so that a NaN is the largest and shows in d.
      const int top = _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(x0), magnitude),
                                                               _mm512_and_si512(_mm512_castps_si512(x1), magnitude)));
      const float amax = f32_from_bits((uint32_t)top);
      const bool plain = amax >= 1e-30f && top < 0x7f800000;
      const float d = amax < 1e-30f ? 0.0f : amax / 127.0f;
      __m512i q0 = _mm512_setzero_si512(), q1 = q0;
      if (plain) {
        const __m512 inverse = _mm512_set1_ps(127.0f / amax);
        q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
        q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
      }
      int8_t* q = dst->q + t * dst->ld_q + col;
      _mm_storeu_si128((__m128i*)q, _mm512_cvtepi32_epi8(q0));
      _mm_storeu_si128((__m128i*)(q + N), _mm512_cvtepi32_epi8(q1));
      const float sum0 = (float)_mm512_reduce_add_epi32(q0), sum1 = (float)_mm512_reduce_add_epi32(q1);
      dst->d[at] = d;
      dst->sum[at] = sum0 + sum1;
      dst->sum16[2 * at] = sum0;
      dst->sum16[2 * at + 1] = sum1;
      dst->s[at] = d * (sum0 + sum1);
      dst->s16[2 * at] = d * sum0;
      dst->s16[2 * at + 1] = d * sum1;
    }
}

}  // namespace

const MatmulKernels MATMUL_AVX512 = {quantize_rows, mul_q8, mul_f32_avx512};

}  // namespace cext
