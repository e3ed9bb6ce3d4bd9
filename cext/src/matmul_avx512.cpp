// The products with AVX-512: int8 by VNNI, f32 by FMA.
//
// Few rows of activations stream the panels as they are packed. More rows unpack a strip of two panels and up to STRIP_COLS
// columns to bytes once and multiply it with tiles of rows; 2 panels of registers times 6 rows keep all sums in registers.
#include "panel_avx512.h"
#include "quantize_avx2.h"

namespace cext {
namespace {

// What the sums of one token's n scale blocks start at, as the bits of MAGIC - zero * sum. Whole vectors are read and written.
CEXT_INLINE void start_sums(const float* sum, int64_t n, int zero, float* out) {
  const __m512 z = _mm512_set1_ps((float)-zero), magic = _mm512_set1_ps(MAGIC);
  for (int64_t i = 0; i < n; i += N) _mm512_store_ps(out + i, _mm512_fmadd_ps(_mm512_loadu_ps(sum + i), z, magic));
}

// ---- few rows ----

constexpr int FEW_ROWS = 4;  // of activations, up to which the panels are multiplied as they are packed

struct FewRows {           // the first row's; the others' follow at a distance
  const int8_t* q;
  const float *d, *s;      // s: per scale block
  const float* start;      // per scale block: start_sums
  int64_t ld_q, n_blocks, ld_s, ld_start;
};

// One panel times NT rows, TERMS to a token. Every row's sums are those of one row alone.
template <int NT, int TERMS, int PLANE, int SCALE, bool LUT>
CEXT_INLINE void few_rows(const uint8_t* block, const FewRows& a, __m512i lut, __mmask16 mask, float* out,
                          int64_t ld_out) {
  constexpr int subs = SUBS<SCALE>, quads = QUADS / subs;
  constexpr int step = BLOCK_BYTES<PLANE> + RECORD_BYTES<SCALE> / RECORD_BLOCKS<SCALE>;
  constexpr bool shifted = PLANE == PLANE_NIBBLE && !LUT;
  const __m512 magic = _mm512_set1_ps(-MAGIC);
  const uint8_t* ahead = block + AHEAD_BYTES;  // runs through the panel's weights and scales as they lie
  const uint8_t* record = block + a.n_blocks * BLOCK_BYTES<PLANE>;
  __m512 acc[NT / TERMS];
#pragma GCC unroll 4
  for (int t = 0; t < NT / TERMS; ++t) acc[t] = _mm512_setzero_ps();
  for (int64_t b0 = 0; b0 < a.n_blocks; b0 += RECORD_BLOCKS<SCALE>, record += RECORD_BYTES<SCALE>) {
#pragma GCC unroll 8
    for (int i = 0; i < RECORD_BLOCKS<SCALE>; ++i, block += BLOCK_BYTES<PLANE>, ahead += step) {
      const int64_t b = b0 + i;
#pragma GCC unroll 9
      for (int at = 0; at < step; at += 64) _mm_prefetch((const char*)ahead + at, _MM_HINT_T1);
#pragma GCC unroll 8
      for (int at = 0; at < BLOCK_BYTES<PLANE>; at += 64) _mm_prefetch((const char*)block + NEAR_BYTES + at, _MM_HINT_T0);
      __m512i w[QUADS];
      block_quads<PLANE, LUT, shifted>(block, lut, w);
      __m512 minimum[2] = {};
#pragma GCC unroll 2
      for (int sub = 0; sub < subs; ++sub) {
        __m512 d;
        load_scale<SCALE>(record, i * subs + sub, &d, &minimum[sub]);
        const __m512 offset = _mm512_mul_ps(magic, d);
#pragma GCC unroll 4
        for (int t = 0; t < NT; ++t) {
          const int8_t* q = a.q + t * a.ld_q + b * BLOCK_COLS;
          const float* start = a.start + t * a.ld_start + b * subs;
          __m512i low = _mm512_castps_si512(_mm512_set1_ps(start[sub])), high = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int j = sub * quads; j < sub * quads + quads / 2; ++j) {
            low = _mm512_dpbusd_epi32(low, w[j], broadcast4(q + 4 * j));
            high = _mm512_dpbusd_epi32(high, w[j + quads / 2], broadcast4(q + 4 * (j + quads / 2)));
          }
          if constexpr (shifted) high = _mm512_srai_epi32(high, 4);
          const __m512 dot = _mm512_castsi512_ps(_mm512_add_epi32(low, high));
          const __m512 scaled = _mm512_fmadd_ps(dot, d, offset);
          acc[t / TERMS] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(a.d[t * a.n_blocks + b]), acc[t / TERMS]);
        }
      }
      if constexpr (HAS_MIN<SCALE>) {
#pragma GCC unroll 2
        for (int sub = 0; sub < subs; ++sub)
#pragma GCC unroll 4
          for (int t = 0; t < NT; ++t)
            acc[t / TERMS] =
                _mm512_fmadd_ps(minimum[sub], _mm512_set1_ps(a.s[t * a.ld_s + b * subs + sub]), acc[t / TERMS]);
      }
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < NT / TERMS; ++t) _mm512_mask_storeu_ps(out + t * ld_out, mask, acc[t]);
}

template <int PLANE, int SCALE, bool LUT>
void few_rows_panels(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1,
                     __m512i lut, int zero, float* out, int64_t ld_out, float* start) {
  constexpr int subs = SUBS<SCALE>;
  const int64_t n = act->n_blocks * subs, ld_start = (n + N - 1) / N * N;
  const int64_t row0 = t0 * act->n_terms, row1 = t1 * act->n_terms;
  const float* sums = subs == 2 ? act->sum16 : act->sum;
  for (int64_t row = row0; row < row1; ++row) start_sums(sums + row * n, n, zero, start + (row - row0) * ld_start);
  const auto from = [&](int64_t row) {
    return FewRows{act->q + row * act->ld_q, act->d + row * act->n_blocks, (subs == 2 ? act->s16 : act->s) + row * n,
                   start + (row - row0) * ld_start, act->ld_q, act->n_blocks, n, ld_start};
  };
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const uint8_t* data = m->data + panel * m->panel_bytes;
    const __mmask16 mask = rows_mask(m, panel);
    float* to = out + panel * N + t0 * ld_out;
    if (act->n_terms == 2) {
      if (row1 - row0 == 4) few_rows<4, 2, PLANE, SCALE, LUT>(data, from(row0), lut, mask, to, ld_out);
      else few_rows<2, 2, PLANE, SCALE, LUT>(data, from(row0), lut, mask, to, ld_out);
      continue;
    }
    int64_t row = row0;
    if (row + 4 <= row1) few_rows<4, 1, PLANE, SCALE, LUT>(data, from(row), lut, mask, to, ld_out), row += 4;
    if (row + 2 <= row1) few_rows<2, 1, PLANE, SCALE, LUT>(data, from(row), lut, mask, to, ld_out), row += 2;
    if (row < row1) few_rows<1, 1, PLANE, SCALE, LUT>(data, from(row), lut, mask, to + (row - row0) * ld_out, ld_out);
  }
}

// ---- many rows ----

struct Tile {                // what a tile of tokens multiplies with
  const uint8_t* w[2];       // quads of the strip's panels
  const float* scales[2];    // f32[n_subs][3][16] each
  int64_t n_blocks;
  __mmask16 mask[2];
  bool is_first;             // sums start at zero, else at what `out` holds
};

// NT rows, TERMS to a token, times R panels. q, d, s: of the first row and the strip's first block. start: f32[NT][ld_start],
// used where the type has a zero (it has none where it has minima).
template <int NT, int TERMS, int R, int SUBS, bool MIN>
void mul_tile(const Tile& tile, const int8_t* q, int64_t ld_q, const float* d, int64_t ld_d, const float* s, int64_t ld_s,
              const float* start, int64_t ld_start, float* out, int64_t ld_out) {
  constexpr int quads = QUADS / SUBS;
  __m512 acc[NT / TERMS][R];
#pragma GCC unroll 16
  for (int t = 0; t < NT / TERMS; ++t)
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
      acc[t][r] = tile.is_first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(tile.mask[r], out + t * ld_out + r * N);
#pragma GCC unroll 16
  for (int t = 0; t < NT / TERMS; ++t)
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
          acc[t / TERMS][r] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(d[t * ld_d]), acc[t / TERMS][r]);
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
          for (int t = 0; t < NT; ++t)
            acc[t / TERMS][r] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(s[t * ld_s + sub]), acc[t / TERMS][r]);
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
  for (int t = 0; t < NT / TERMS; ++t)
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r) _mm512_mask_storeu_ps(out + t * ld_out + r * N, tile.mask[r], acc[t][r]);
}

constexpr int TILE_ROWS = 6;

template <int NT, int TERMS, int SUBS, bool MIN>
CEXT_INLINE void mul_rows(const Tile& tile, int n_panels, const ActQ8* act, int64_t row, int64_t b0, int zero, float* out,
                          int64_t ld_out) {
  constexpr int ld_start = (STRIP_BLOCKS * SUBS + N - 1) / N * N;
  alignas(64) float start[MIN ? 1 : NT * ld_start];
  const int64_t ld = act->n_blocks * SUBS;
  const float* sums = (SUBS == 2 ? act->sum16 : act->sum) + row * ld + b0 * SUBS;
  for (int i = 0; i < NT && !MIN; ++i) start_sums(sums + i * ld, tile.n_blocks * SUBS, zero, start + i * ld_start);
  const int8_t* q = act->q + row * act->ld_q + b0 * BLOCK_COLS;
  const float* d = act->d + row * act->n_blocks + b0;
  const float* s = (SUBS == 2 ? act->s16 : act->s) + row * ld + b0 * SUBS;
  out += row / TERMS * ld_out;
  if (n_panels == 2)
    mul_tile<NT, TERMS, 2, SUBS, MIN>(tile, q, act->ld_q, d, act->n_blocks, s, ld, start, ld_start, out, ld_out);
  else mul_tile<NT, TERMS, 1, SUBS, MIN>(tile, q, act->ld_q, d, act->n_blocks, s, ld, start, ld_start, out, ld_out);
}

// Activation rows [row0, row1), TERMS to a token.
template <int TERMS, int SUBS, bool MIN>
CEXT_INLINE void mul_all_rows(const Tile& tile, int n_panels, const ActQ8* act, int64_t row0, int64_t row1, int64_t b0,
                              int zero, float* out, int64_t ld_out) {
  int64_t row = row0;
  for (; row + TILE_ROWS <= row1; row += TILE_ROWS)
    mul_rows<TILE_ROWS, TERMS, SUBS, MIN>(tile, n_panels, act, row, b0, zero, out, ld_out);
  for (; row + 2 <= row1; row += 2) mul_rows<2, TERMS, SUBS, MIN>(tile, n_panels, act, row, b0, zero, out, ld_out);
  if constexpr (TERMS == 1)
    if (row < row1) mul_rows<1, TERMS, SUBS, MIN>(tile, n_panels, act, row, b0, zero, out, ld_out);
}

template <int PLANE, int SCALE, bool LUT>
void many_rows(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, __m512i lut,
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
        if constexpr (PLANE == PLANE_BYTE) {
          tile.w[r] = m->data + (panel + r) * m->panel_bytes + b0 * BLOCK_BYTES<PLANE>;
          for (int64_t b = 0; b < tile.n_blocks; ++b) fetch_block<PLANE>(tile.w[r] + b * BLOCK_BYTES<PLANE>);
        } else {
          unpack_weights<PLANE, LUT>(m, panel + r, b0, b0 + tile.n_blocks, lut, 0, bytes);
          tile.w[r] = bytes;
        }
        unpack_scales<PLANE, SCALE>(m, panel + r, b0, b0 + tile.n_blocks, f);
        tile.scales[r] = f;
        tile.mask[r] = rows_mask(m, panel + r);
      }
      if (n_panels == 1) {
        tile.w[1] = tile.w[0];
        tile.scales[1] = tile.scales[0];
        tile.mask[1] = 0;
      }
      float* to = out + panel * N;
      if (act->n_terms == 2)
        mul_all_rows<2, subs, with_min>(tile, n_panels, act, 2 * t0, 2 * t1, b0, zero, to, ld_out);
      else mul_all_rows<1, subs, with_min>(tile, n_panels, act, t0, t1, b0, zero, to, ld_out);
    }
  }
}

template <int PLANE, int SCALE, bool LUT>
void mul_type(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
              int64_t ld_out, void* scratch) {
  const PanelLayout& layout = panel_layout(m->type);
  const __m512i lut =
      LUT ? _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)layout.lut)) : _mm512_setzero_si512();
  if ((t1 - t0) * act->n_terms > FEW_ROWS) {
    many_rows<PLANE, SCALE, LUT>(m, panel0, panel1, act, t0, t1, lut, layout.zero, out, ld_out, (uint8_t*)scratch);
    return;
  }
  float* start = (float*)((uint8_t*)scratch + SCRATCH_WEIGHTS + SCRATCH_SCALES);
  few_rows_panels<PLANE, SCALE, LUT>(m, panel0, panel1, act, t0, t1, lut, layout.zero, out, ld_out, start);
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

}  // namespace

const MatmulKernels MATMUL_AVX512 = {quantize_rows, mul_q8, mul_f32_avx512};

}  // namespace cext
