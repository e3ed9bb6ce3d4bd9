// The recurrences, written once: plain loops that the compiler turns into the vectors of the including file's flags, and
// exponentials over the vectors of simd_<isa>.h, which that file chooses.
#pragma once
#include "recurrent.h"
#include "simd_math.h"

namespace cext {
namespace {

constexpr int64_t CHANNELS = 64;  // of a task, about

int64_t heads_per_task(const RecurrentParams& p) {
  const int64_t n = p.kind == RECURRENT_CONV || p.kind == RECURRENT_SHIFT ? CHANNELS : CHANNELS / p.d_v;
  return n < 1 ? 1 : n;
}

// What one task works on: heads [h0, h1) of one segment. `state` is the target's, already holding what the source says.
struct Part {
  const RecurrentCall* call;
  const RecurrentParams* p;
  int64_t t0, n_tokens, h0, h1;
  const float* before;  // the source's, or null
  float* state;
  float* scratch;

  const float* in(int i, int64_t t) const { return call->in[i].data + (t0 + t) * call->in[i].ld; }
  float* out(int64_t t) const { return call->out.data + (t0 + t) * call->out.ld; }
};

float dot(const float* x, const float* y, int64_t n) {
  VF sum = vf_zero();
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) sum = vf_fma(vf_load(x + i), vf_load(y + i), sum);
  if (i < n) sum = vf_fma(vf_load_n(x + i, n - i), vf_load_n(y + i, n - i), sum);
  return vf_hsum(sum);
}

// s = s * decay + b * x; returns s . y.
float scan_row(float* s, const float* decay, const float* b, float x, const float* y, int64_t n) {
  const VF by = vf_set1(x);
  VF sum = vf_zero();
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) {
    const VF next = vf_fma(vf_load(b + i), by, vf_mul(vf_load(s + i), vf_load(decay + i)));
    vf_store(s + i, next);
    sum = vf_fma(next, vf_load(y + i), sum);
  }
  if (i < n) {
    const int64_t m = n - i;
    const VF next = vf_fma(vf_load_n(b + i, m), by, vf_mul(vf_load_n(s + i, m), vf_load_n(decay + i, m)));
    vf_store_n(s + i, next, m);
    sum = vf_fma(next, vf_load_n(y + i, m), sum);
  }
  return vf_hsum(sum);
}

float exp_one(float x) { return vf_first_lane(vf_exp(vf_set1(x))); }

// out = f(x * factor): every value by the same arithmetic, wherever the range begins or ends.
template <typename F>
inline void map_scaled(const float* x, float factor, int64_t n, float* out, F f) {
  const VF by = vf_set1(factor);
  int64_t i = 0;
  for (; i + VF_W <= n; i += VF_W) vf_store(out + i, f(vf_mul(by, vf_load(x + i))));
  if (i < n) vf_store_n(out + i, f(vf_mul(by, vf_load_n(x + i, n - i))), n - i);
}

// Values of the row `age` rows before the segment's first one, or null for zeros: the state holds d_k - 1 rows, oldest first.
const float* row_before(const Part& c, int64_t age) {
  return c.before ? c.before + (c.p->d_k - 1 - age) * c.p->n_head : nullptr;
}

const float* row_at(const Part& c, int64_t t) { return t >= 0 ? c.in(0, t) : row_before(c, -t); }

// Leave the last d_k - 1 rows. Row j comes from a row behind it, so that the source may be the target.
void keep_rows(const Part& c) {
  for (int64_t j = 0; j < c.p->d_k - 1; ++j) {
    const float* x = row_at(c, c.n_tokens - (c.p->d_k - 1) + j);
    float* to = c.state + j * c.p->n_head;
    for (int64_t h = c.h0; h < c.h1; ++h) to[h] = x ? x[h] : 0.0f;
  }
}

void conv(const Part& c) {
  const RecurrentParams& p = *c.p;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    float* out = c.out(t);
    for (int64_t h = c.h0; h < c.h1; ++h) out[h] = p.b ? p.b[h] : 0.0f;
    for (int64_t j = 0; j < p.d_k; ++j) {
      const float* x = row_at(c, t - (p.d_k - 1) + j);
      if (!x) continue;
      const float* w = p.w + j * p.n_head;
      for (int64_t h = c.h0; h < c.h1; ++h) out[h] += w[h] * x[h];
    }
    if (p.arg)
      map_scaled(out + c.h0, 1.0f, c.h1 - c.h0, out + c.h0, [](VF v) { return vf_silu(v); });
  }
  keep_rows(c);
}

void shift(const Part& c) {
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    const float *x = c.in(0, t), *last = row_at(c, t - 1);
    float* out = c.out(t);
    for (int64_t h = c.h0; h < c.h1; ++h) out[h] = (last ? last[h] : 0.0f) - x[h];
  }
  keep_rows(c);
}

// h = exp(dt A) h + dt B x; y = C h + D x. Source: arXiv:2312.00752, arXiv:2405.21060.
void ssm(const Part& c) {
  const RecurrentParams& p = *c.p;
  const int64_t n = p.d_k, per_group = p.n_head / p.n_group;
  float *decay = c.scratch, *steps = c.scratch + n;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    map_scaled(c.in(1, t) + c.h0, 1.0f, c.h1 - c.h0, steps, [](VF v) { return vf_softplus(v); });
    for (int64_t h = c.h0; h < c.h1; ++h) {
      const float dt = steps[h - c.h0], shared = p.arg ? 0.0f : exp_one(dt * p.w[h]);
      const float *b = c.in(2, t) + h / per_group * n, *y = c.in(3, t) + h / per_group * n;
      const float* x = c.in(0, t) + h * p.d_v;
      float* out = c.out(t) + h * p.d_v;
      if (p.arg) map_scaled(p.w + h * n, dt, n, decay, [](VF v) { return vf_exp(v); });
      for (int64_t i = 0; !p.arg && i < n; ++i) decay[i] = shared;
      for (int64_t v = 0; v < p.d_v; ++v) {
        float* s = c.state + (h * p.d_v + v) * n;
        out[v] = scan_row(s, decay, b, x[v] * dt, y, n) + p.b[h] * x[v];
      }
    }
  }
}

// S = exp(gate) S; S = S + k (beta (v - k S)); o = q S. Source: arXiv:2412.06464.
void delta(const Part& c) {
  const RecurrentParams& p = *c.p;
  const int64_t d_k = p.d_k, d_v = p.d_v, per_group = p.n_head / p.n_group;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    for (int64_t h = c.h0; h < c.h1; ++h) {
      const int64_t g = p.arg ? h % p.n_group : h / per_group;
      const float *q = c.in(0, t) + g * d_k, *k = c.in(1, t) + g * d_k, *v = c.in(2, t) + h * d_v;
      const float decay = exp_one(c.in(3, t)[h]), beta = c.in(4, t)[h];
      float *s = c.state + h * d_k * d_v, *out = c.out(t) + h * d_v, *change = c.scratch;
      __builtin_memset(change, 0, sizeof(float) * d_v);
      for (int64_t i = 0; i < d_k; ++i) {
        float* row = s + i * d_v;
        for (int64_t j = 0; j < d_v; ++j) {
          row[j] *= decay;
          change[j] += k[i] * row[j];
        }
      }
      for (int64_t j = 0; j < d_v; ++j) change[j] = beta * (v[j] - change[j]);
      __builtin_memset(out, 0, sizeof(float) * d_v);
      for (int64_t i = 0; i < d_k; ++i) {
        float* row = s + i * d_v;
        for (int64_t j = 0; j < d_v; ++j) {
          row[j] += k[i] * change[j];
          out[j] += q[i] * row[j];
        }
      }
    }
  }
}

// o = r (S + (u k) v); S = w S + k v. Source: arXiv:2404.05892.
void wkv6(const Part& c) {
  const RecurrentParams& p = *c.p;
  const int64_t d = p.d_k;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    for (int64_t h = c.h0; h < c.h1; ++h) {
      const float *r = c.in(0, t) + h * d, *k = c.in(1, t) + h * d, *v = c.in(2, t) + h * d, *w = c.in(3, t) + h * d;
      float *s = c.state + h * d * d, *out = c.out(t) + h * d;
      __builtin_memset(out, 0, sizeof(float) * d);
      for (int64_t i = 0; i < d; ++i) {
        float* row = s + i * d;
        const float bonus = p.w[h * d + i] * k[i];
        for (int64_t j = 0; j < d; ++j) {
          out[j] += r[i] * (bonus * v[j] + row[j]);
          row[j] = row[j] * w[i] + k[i] * v[j];
        }
      }
    }
  }
}

// S = S (diag(w) + a b) + v k; o = S r. Source: arXiv:2503.14456.
void wkv7(const Part& c) {
  const RecurrentParams& p = *c.p;
  const int64_t d = p.d_k;
  for (int64_t t = 0; t < c.n_tokens; ++t) {
    for (int64_t h = c.h0; h < c.h1; ++h) {
      const float *r = c.in(0, t) + h * d, *w = c.in(1, t) + h * d, *k = c.in(2, t) + h * d, *v = c.in(3, t) + h * d;
      const float *a = c.in(4, t) + h * d, *b = c.in(5, t) + h * d;
      float *s = c.state + h * d * d, *out = c.out(t) + h * d;
      for (int64_t i = 0; i < d; ++i) {
        float* row = s + i * d;
        const float removed = dot(row, a, d);
        for (int64_t j = 0; j < d; ++j) row[j] = row[j] * w[j] + v[i] * k[j] + removed * b[j];
        out[i] = dot(row, r, d);
      }
    }
  }
}

int64_t n_tasks(const RecurrentCall* call) {
  const int64_t per_task = heads_per_task(*call->p);
  return call->n_segments * ((call->p->n_head + per_task - 1) / per_task);
}

void task(const RecurrentCall* call, int64_t index, void* scratch) {
  const RecurrentParams& p = *call->p;
  const int64_t per_task = heads_per_task(p), n_blocks = (p.n_head + per_task - 1) / per_task;
  const StateSegment& segment = call->segments[index / n_blocks];
  const int64_t h0 = index % n_blocks * per_task, h1 = h0 + per_task < p.n_head ? h0 + per_task : p.n_head;
  const uint8_t* source = segment.source ? segment.source + p.state_off : nullptr;
  Part c{call, &p, segment.t0, segment.n_tokens, h0, h1, reinterpret_cast<const float*>(source),
         reinterpret_cast<float*>(segment.target + p.state_off), static_cast<float*>(scratch)};
  if (p.kind != RECURRENT_CONV && p.kind != RECURRENT_SHIFT && c.before != c.state) {
    const int64_t size = p.d_k * p.d_v;
    if (c.before)
      __builtin_memcpy(c.state + h0 * size, c.before + h0 * size, sizeof(float) * (h1 - h0) * size);
    else
      __builtin_memset(c.state + h0 * size, 0, sizeof(float) * (h1 - h0) * size);
  }
  switch (p.kind) {
    case RECURRENT_CONV: conv(c); break;
    case RECURRENT_SHIFT: shift(c); break;
    case RECURRENT_SSM: ssm(c); break;
    case RECURRENT_DELTA: delta(c); break;
    case RECURRENT_WKV6: wkv6(c); break;
    case RECURRENT_WKV7: wkv7(c); break;
  }
}

constexpr RecurrentKernels kRecurrentKernels = {n_tasks, task};

}  // namespace
}  // namespace cext
