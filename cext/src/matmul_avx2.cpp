// The products with AVX2: int8 by `vpmaddubsw`, f32 by FMA.
//
// A strip of one panel and up to STRIP_COLS columns is unpacked to bytes once and multiplied with tiles of three tokens.
// `vpmaddubsw` gives 16-bit sums of two products: weights below 16 can add up eight of them before they overflow, weights below
// 32 four, below 64 two. Weights of 8 bits are made signed, and their sign moves to the activation, so that one sum fits.
#include "intrinsics.h"
#include "matmul_impl.h"
#include "quantize_avx2.h"

namespace cext {
namespace {

constexpr int N = PANEL_ROWS_N;
constexpr int SIGNED = 1;  // as GROUP: weights are signed, every 16-bit sum is widened at once

CEXT_INLINE __m256i load(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
CEXT_INLINE __m256i broadcast4(const int8_t* p) {
  int32_t value;
  __builtin_memcpy(&value, p, 4);
  return _mm256_set1_epi32(value);
}

// One half (8 rows) of the eight quads of a block as bytes.
template <int PLANE, bool LUT>
CEXT_INLINE void half_quads(const uint8_t* src, __m256i lut, __m256i zero, __m256i* w) {
  constexpr bool nibbles = PLANE <= PLANE_NIBBLE2, is_signed = LUT || PLANE == PLANE_BYTE;
  if constexpr (PLANE == PLANE_BYTE) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) w[j] = load(src + 64 * j);
  }
  if constexpr (nibbles) {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m256i x = load(src + 64 * j);
      w[j] = _mm256_and_si256(x, low);
      w[j + 4] = _mm256_and_si256(_mm256_srli_epi16(x, 4), low);
    }
  }
  if constexpr (PLANE == PLANE_NIBBLE2 || PLANE == PLANE_CRUMB || PLANE == PLANE_CRUMB1) {
    const __m256i mask = _mm256_set1_epi8(3);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i bits = load(src + (nibbles ? 256 : 0) + 64 * (j / 4));
      const __m256i crumb = _mm256_and_si256(_mm256_srli_epi16(bits, 2 * (j % 4)), mask);
      if constexpr (nibbles) w[j] = _mm256_or_si256(w[j], _mm256_slli_epi16(crumb, 4));
      else w[j] = crumb;
    }
  }
  if constexpr (PLANE == PLANE_NIBBLE1 || PLANE == PLANE_CRUMB1) {
    const __m256i bits = load(src + (nibbles ? 256 : 128)), one = _mm256_set1_epi8(1);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(bits, j), one);
      w[j] = _mm256_or_si256(w[j], _mm256_slli_epi16(bit, nibbles ? 4 : 2));
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    if constexpr (LUT) w[j] = _mm256_shuffle_epi8(lut, w[j]);
    if constexpr (is_signed) w[j] = _mm256_sub_epi8(w[j], zero);
  }
}

// The sum of four products of bytes in each lane, as 16-bit pairs.
template <bool SIGNED_WEIGHTS>
CEXT_INLINE __m256i pair_products(__m256i w, __m256i a) {
  if constexpr (SIGNED_WEIGHTS) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
  else return _mm256_maddubs_epi16(w, a);
}

CEXT_INLINE void fetch_block(const uint8_t* block, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) {
    _mm_prefetch((const char*)block + AHEAD_BYTES + at, _MM_HINT_T1);
    _mm_prefetch((const char*)block + NEAR_BYTES + at, _MM_HINT_T0);
  }
}

CEXT_INLINE __m256 load_f16(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
CEXT_INLINE __m256i load_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
CEXT_INLINE __m256 load_s8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}

// Scale and minimum of sub-block `sub` of a scale record, for 8 rows from `row`.
template <int SCALE>
CEXT_INLINE void load_scale(const uint8_t* record, int sub, int row, __m256* d, __m256* m) {
  *m = _mm256_setzero_ps();
  if constexpr (SCALE == SCALE_E8M0) {
    const __m256i e = load_u8(record + row);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    *d = _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
    return;
  }
  const __m256 base = load_f16(record + 2 * row);
  if constexpr (SCALE == SCALE_F16 || SCALE == SCALE_F16_MIN) {
    *d = base;
    if constexpr (SCALE == SCALE_F16_MIN) *m = load_f16(record + 32 + 2 * row);
  } else if constexpr (SCALE == SCALE_K32 || SCALE == SCALE_K16) {
    *d = _mm256_mul_ps(base, load_s8(record + 32 + N * sub + row));
  } else {
    const __m256 base_min = _mm256_sub_ps(*m, load_f16(record + 32 + 2 * row));
    const __m256i scale = load_u8(record + 64 + N * sub + row);
    if constexpr (SCALE == SCALE_K32_MIN) {
      *d = _mm256_mul_ps(base, _mm256_cvtepi32_ps(scale));
      *m = _mm256_mul_ps(base_min, _mm256_cvtepi32_ps(load_u8(record + 64 + N * (8 + sub) + row)));
    } else {
      *d = _mm256_mul_ps(base, _mm256_cvtepi32_ps(_mm256_and_si256(scale, _mm256_set1_epi32(15))));
      *m = _mm256_mul_ps(base_min, _mm256_cvtepi32_ps(_mm256_srli_epi32(scale, 4)));
    }
  }
}

template <int PLANE, bool LUT>
constexpr int GROUP = LUT || PLANE == PLANE_BYTE ? SIGNED : PLANE == PLANE_NIBBLE1 ? 4 : PLANE == PLANE_NIBBLE2 ? 2 : 8;
template <int SCALE>
constexpr int SUBS = SCALE >= SCALE_K16 ? 2 : 1;
template <int SCALE>
constexpr bool HAS_MIN = SCALE == SCALE_F16_MIN || SCALE == SCALE_K32_MIN || SCALE == SCALE_K16_MIN;

// Blocks [b0, b1) of a panel as bytes, and their scales as f32[3][16]: d, -MAGIC d, m.
template <int PLANE, int SCALE, bool LUT>
void unpack_strip(const PackedMatrix* m, const PanelLayout& layout, int64_t panel, int64_t b0, int64_t b1, uint8_t* dst,
                  float* scales) {
  const uint8_t* data = m->data + panel * m->panel_bytes;
  const int64_t block_bytes = layout.block_bytes, record_blocks = layout.record_cols / BLOCK_COLS;
  const __m256i zero = _mm256_set1_epi8((char)layout.zero);
  const __m256i lut =
      LUT ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)layout.lut)) : _mm256_setzero_si256();
  for (int64_t b = b0; b < b1; ++b, dst += QUADS * QUAD_BYTES) {
    fetch_block(data + b * block_bytes, block_bytes);
    for (int half = 0; half < 2; ++half) {
      __m256i w[QUADS];
      half_quads<PLANE, LUT>(data + b * block_bytes + 32 * half, lut, zero, w);
#pragma GCC unroll 8
      for (int j = 0; j < QUADS; ++j) _mm256_store_si256((__m256i*)(dst + 32 * half + QUAD_BYTES * j), w[j]);
    }
  }
  const uint8_t* record = data + m->n_cols / BLOCK_COLS * block_bytes + b0 / record_blocks * layout.record_bytes;
  for (int64_t b = b0; b < b1; b += record_blocks, record += layout.record_bytes)
    for (int sub = 0; sub < record_blocks * SUBS<SCALE>; ++sub, scales += 3 * N)
      for (int row = 0; row < N; row += 8) {
        __m256 d, minimum;
        load_scale<SCALE>(record, sub, row, &d, &minimum);
        _mm256_store_ps(scales + row, d);
        _mm256_store_ps(scales + N + row, _mm256_mul_ps(d, _mm256_set1_ps(-MAGIC)));
        _mm256_store_ps(scales + 2 * N + row, minimum);
      }
}

// The first n_rows of a vector (all where there are eight or more).
CEXT_INLINE __m256i rows_mask(int64_t n_rows) {
  const __m256i n = _mm256_set1_epi32(n_rows < 8 ? (int)n_rows : 8);
  return _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// A masked store to a line that is not in the cache is slow: whole vectors are stored as such.
CEXT_INLINE void store_rows(float* out, __m256 rows, int64_t n_rows) {
  if (n_rows >= 8) _mm256_storeu_ps(out, rows);
  else if (n_rows > 0) _mm256_maskstore_ps(out, rows_mask(n_rows), rows);
}

CEXT_INLINE __m256 load_rows(const float* out, int64_t n_rows) {
  return n_rows >= 8 ? _mm256_loadu_ps(out) : _mm256_maskload_ps(out, rows_mask(n_rows));
}

struct Tile {           // half a strip: eight rows
  const uint8_t* w;
  const float* scales;  // f32[n_subs][3][16]
  int64_t n_blocks;
  int64_t n_rows;       // that are written, eight or more for all
  bool is_first;        // of the row: sums start at zero, else at what `out` holds
};

// NT rows of activations, TERMS to a token, times eight rows. start: f32[NT][ld_start], MAGIC - zero * sum of each scale block,
// used where weights are unsigned and have a zero.
template <int NT, int TERMS, int GROUP_N, int SUBS_N, bool MIN>
void mul_tile(const Tile& tile, const int8_t* q, int64_t ld_q, const float* d, int64_t ld_d, const float* s, int64_t ld_s,
              const float* start, int64_t ld_start, float* out, int64_t ld_out) {
  constexpr int quads = QUADS / SUBS_N, group = GROUP_N < quads ? GROUP_N : quads;
  constexpr bool with_start = GROUP_N != SIGNED && !MIN;
  const __m256i ones = _mm256_set1_epi16(1), magic = _mm256_castps_si256(_mm256_set1_ps(MAGIC));
  __m256 acc[NT / TERMS];
#pragma GCC unroll 8
  for (int t = 0; t < NT / TERMS; ++t)
    acc[t] = tile.is_first ? _mm256_setzero_ps() : load_rows(out + t * ld_out, tile.n_rows);
#pragma GCC unroll 8
  for (int t = 0; t < NT / TERMS; ++t) _mm_prefetch((const char*)(out + t * ld_out), _MM_HINT_T0);
  const uint8_t* w = tile.w;
  const float* scales = tile.scales;
  for (int64_t b = 0; b < tile.n_blocks; ++b, q += BLOCK_COLS, ++d, s += SUBS_N, start += SUBS_N) {
#pragma GCC unroll 2
    for (int sub = 0; sub < SUBS_N; ++sub) {
      __m256i dot[NT];
#pragma GCC unroll 8
      for (int g = 0; g < quads; g += group) {
        __m256i pairs[NT];
#pragma GCC unroll 8
        for (int j = 0; j < group; ++j, w += QUAD_BYTES) {
          const __m256i weights = load(w);
          const int at = 4 * (sub * quads + g + j);
#pragma GCC unroll 8
          for (int t = 0; t < NT; ++t) {
            const __m256i products = pair_products<GROUP_N == SIGNED>(weights, broadcast4(q + t * ld_q + at));
            pairs[t] = j ? _mm256_add_epi16(pairs[t], products) : products;
          }
        }
#pragma GCC unroll 8
        for (int t = 0; t < NT; ++t) {
          const __m256i wide = _mm256_madd_epi16(pairs[t], ones);
          if (g) dot[t] = _mm256_add_epi32(dot[t], wide);
          else if constexpr (with_start)
            dot[t] = _mm256_add_epi32(_mm256_castps_si256(_mm256_set1_ps(start[t * ld_start + sub])), wide);
          else dot[t] = _mm256_add_epi32(magic, wide);
        }
      }
      const __m256 scale = _mm256_load_ps(scales + 3 * N * sub), offset = _mm256_load_ps(scales + 3 * N * sub + N);
#pragma GCC unroll 8
      for (int t = 0; t < NT; ++t) {
        const __m256 scaled = _mm256_fmadd_ps(_mm256_castsi256_ps(dot[t]), scale, offset);
        acc[t / TERMS] = _mm256_fmadd_ps(scaled, _mm256_set1_ps(d[t * ld_d]), acc[t / TERMS]);
      }
    }
    if constexpr (MIN) {
#pragma GCC unroll 2
      for (int sub = 0; sub < SUBS_N; ++sub) {
        const __m256 minimum = _mm256_load_ps(scales + 3 * N * sub + 2 * N);
#pragma GCC unroll 8
        for (int t = 0; t < NT; ++t)
          acc[t / TERMS] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(s[t * ld_s + sub]), acc[t / TERMS]);
      }
    }
    scales += 3 * N * SUBS_N;
  }
#pragma GCC unroll 8
  for (int t = 0; t < NT / TERMS; ++t) store_rows(out + t * ld_out, acc[t], tile.n_rows);
}

constexpr int TILE_ROWS = 6;

// NT rows of activations from `act_row` times both halves of a strip.
template <int NT, int TERMS, int GROUP_N, int SUBS_N, bool MIN>
CEXT_INLINE void mul_rows(Tile tile, int64_t n_rows, const ActQ8* act, int64_t act_row, int64_t b0, int zero, float* out,
                          int64_t ld_out) {
  constexpr bool with_start = GROUP_N != SIGNED && !MIN;
  constexpr int ld_start = (STRIP_BLOCKS * SUBS_N + 7) / 8 * 8;
  alignas(32) float start[with_start ? NT * ld_start : 1];
  const int64_t ld = act->n_blocks * SUBS_N, at = act_row * ld + b0 * SUBS_N;
  const float* sums = (SUBS_N == 2 ? act->sum16 : act->sum) + at;
  const __m256 z = _mm256_set1_ps((float)-zero), magic = _mm256_set1_ps(MAGIC);
  for (int i = 0; i < NT && with_start; ++i)
    for (int64_t j = 0; j < tile.n_blocks * SUBS_N; j += 8)
      _mm256_store_ps(start + i * ld_start + j, _mm256_fmadd_ps(_mm256_loadu_ps(sums + i * ld + j), z, magic));
  const int8_t* q = act->q + act_row * act->ld_q + b0 * BLOCK_COLS;
  const float* d = act->d + act_row * act->n_blocks + b0;
  const float* s = (SUBS_N == 2 ? act->s16 : act->s) + at;
  out += act_row / TERMS * ld_out;
  for (int row = 0; row < N && row < n_rows; row += 8, tile.w += 32, tile.scales += 8) {
    tile.n_rows = n_rows - row;
    mul_tile<NT, TERMS, GROUP_N, SUBS_N, MIN>(tile, q, act->ld_q, d, act->n_blocks, s, ld, start, ld_start, out + row, ld_out);
  }
}

// Activation rows [row0, row1), TERMS to a token.
template <int TERMS, int GROUP_N, int SUBS_N, bool MIN>
CEXT_INLINE void mul_all_rows(const Tile& tile, int64_t n_rows, const ActQ8* act, int64_t row0, int64_t row1, int64_t b0,
                              int zero, float* out, int64_t ld_out) {
  int64_t row = row0;
  for (; row + TILE_ROWS <= row1; row += TILE_ROWS)
    mul_rows<TILE_ROWS, TERMS, GROUP_N, SUBS_N, MIN>(tile, n_rows, act, row, b0, zero, out, ld_out);
  for (; row + 2 <= row1; row += 2) mul_rows<2, TERMS, GROUP_N, SUBS_N, MIN>(tile, n_rows, act, row, b0, zero, out, ld_out);
  if constexpr (TERMS == 1)
    if (row < row1) mul_rows<1, TERMS, GROUP_N, SUBS_N, MIN>(tile, n_rows, act, row, b0, zero, out, ld_out);
}

// One token times the panels as they are packed: the same sums as mul_tile's.
template <int TERMS, int PLANE, int SCALE, bool LUT>
void one_token(const PackedMatrix* m, const PanelLayout& layout, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t,
               float* out) {
  constexpr int subs = SUBS<SCALE>, quads = QUADS / subs;
  constexpr int group = GROUP<PLANE, LUT> < quads ? GROUP<PLANE, LUT> : quads;
  constexpr bool with_min = HAS_MIN<SCALE>, is_signed = GROUP<PLANE, LUT> == SIGNED;
  const int64_t record_blocks = layout.record_cols / BLOCK_COLS;
  const __m256i zero = _mm256_set1_epi8((char)layout.zero), ones = _mm256_set1_epi16(1);
  const __m256i lut =
      LUT ? _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)layout.lut)) : _mm256_setzero_si256();
  const int64_t n = act->n_blocks, row = t * TERMS;
  const int8_t* q = act->q + row * act->ld_q;
  const float* d = act->d + row * n;
  const float* s = (subs == 2 ? act->s16 : act->s) + row * n * subs;
  const float* sum = (subs == 2 ? act->sum16 : act->sum) + row * n * subs;
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const uint8_t* data = m->data + panel * m->panel_bytes;
    const uint8_t* record = data + n * layout.block_bytes;
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t b = 0; b < n; ++b, data += layout.block_bytes) {
      fetch_block(data, layout.block_bytes);
      const int first = (int)(b % record_blocks) * subs;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256i w[QUADS];
        half_quads<PLANE, LUT>(data + 32 * half, lut, zero, w);
        __m256 minimum[2];
#pragma GCC unroll 2
        for (int sub = 0; sub < subs; ++sub) {
          __m256 scale;
          load_scale<SCALE>(record, first + sub, 8 * half, &scale, &minimum[sub]);
#pragma GCC unroll 2
          for (int i = 0; i < TERMS; ++i) {
            __m256i dot = _mm256_setzero_si256();
            if constexpr (!is_signed && !with_min) dot = _mm256_set1_epi32(-layout.zero * (int32_t)sum[(i * n + b) * subs + sub]);
            const int8_t* block_q = q + i * act->ld_q + b * BLOCK_COLS;
#pragma GCC unroll 8
            for (int g = 0; g < quads; g += group) {
              __m256i pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
              for (int j = sub * quads + g; j < sub * quads + g + group; ++j)
                pairs = _mm256_add_epi16(pairs, pair_products<is_signed>(w[j], broadcast4(block_q + 4 * j)));
              dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
            }
            const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot), scale);
            acc[half] = _mm256_fmadd_ps(scaled, _mm256_set1_ps(d[i * n + b]), acc[half]);
          }
        }
        if constexpr (with_min)
          for (int sub = 0; sub < subs; ++sub)
            for (int i = 0; i < TERMS; ++i)
              acc[half] = _mm256_fmadd_ps(minimum[sub], _mm256_set1_ps(s[(i * n + b) * subs + sub]), acc[half]);
      }
      if (b % record_blocks == record_blocks - 1) record += layout.record_bytes;
    }
    const int64_t left = m->n_rows - panel * N;
    store_rows(out + panel * N, acc[0], left);
    store_rows(out + panel * N + 8, acc[1], left - 8);
  }
}

template <int PLANE, int SCALE, bool LUT>
void mul_type(const PackedMatrix* m, int64_t panel0, int64_t panel1, const ActQ8* act, int64_t t0, int64_t t1, float* out,
              int64_t ld_out, void* scratch) {
  constexpr int subs = SUBS<SCALE>, group = GROUP<PLANE, LUT>;
  constexpr bool with_min = HAS_MIN<SCALE>;
  const PanelLayout& layout = panel_layout(m->type);
  if (t1 - t0 == 1)
    return (act->n_terms == 2 ? one_token<2, PLANE, SCALE, LUT> : one_token<1, PLANE, SCALE, LUT>)(
        m, layout, panel0, panel1, act, t0, out + t0 * ld_out);
  const int64_t step = strip_blocks(act->n_blocks, layout.record_cols / BLOCK_COLS);
  uint8_t* bytes = (uint8_t*)scratch;
  float* scales = (float*)(bytes + SCRATCH_WEIGHTS);  // SAFETY: scratch is aligned to 64 bytes
  for (int64_t panel = panel0; panel < panel1; ++panel) {
    const int64_t left = m->n_rows - panel * N;
    for (int64_t b0 = 0; b0 < act->n_blocks; b0 += step) {
      const int64_t n_blocks = act->n_blocks - b0 < step ? act->n_blocks - b0 : step;
      unpack_strip<PLANE, SCALE, LUT>(m, layout, panel, b0, b0 + n_blocks, bytes, scales);
      const Tile tile = {bytes, scales, n_blocks, left, b0 == 0};
      float* to = out + panel * N;
      if (act->n_terms == 2)
        mul_all_rows<2, group, subs, with_min>(tile, left, act, 2 * t0, 2 * t1, b0, layout.zero, to, ld_out);
      else mul_all_rows<1, group, subs, with_min>(tile, left, act, t0, t1, b0, layout.zero, to, ld_out);
    }
  }
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

const MatmulKernels MATMUL_AVX2 = {quantize_rows, mul_q8, mul_f32_avx2};

}  // namespace cext
