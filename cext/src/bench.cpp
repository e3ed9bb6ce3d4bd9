// Times passes on threads of its own, which start together; each pass takes as long as its slowest thread.
#include "bench.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace cext {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Best seconds of fn(thread) on all threads at once; `reset` runs before each pass, alone.
template <class Fn, class Reset>
double best_pass(int n_threads, int n_repeats, Reset reset, Fn fn) {
  double best = 1e30;
  for (int repeat = 0; repeat < n_repeats; ++repeat) {
    reset();
    std::atomic<int> ready{0}, done{0};
    std::vector<std::thread> threads;
    const auto body = [&](int i) {
      ready.fetch_add(1);
      while (ready.load() < n_threads) std::this_thread::yield();
      fn(i);
      done.fetch_add(1);
    };
    for (int i = 1; i < n_threads; ++i) threads.emplace_back(body, i);
    ready.fetch_add(1);
    while (ready.load() < n_threads) std::this_thread::yield();
    const double start = now();
    fn(0);
    while (done.load() < n_threads - 1) std::this_thread::yield();
    const double seconds = now() - start;
    for (auto& thread : threads) thread.join();
    if (seconds < best) best = seconds;
  }
  return best;
}

struct Memory {
  explicit Memory(int64_t bytes) : data(std::aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64))) {}
  ~Memory() { std::free(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data;
};

}  // namespace

double bench_mul(Isa isa, const PackedMatrix* m, int64_t n_copies, int64_t n_tokens, int n_threads, int n_repeats) {
  const MatmulKernels& kernels = matmul_kernels_for(isa);
  const int64_t n_terms = n_tokens <= TWO_TERM_TOKENS ? 2 : 1;
  const int64_t scratch_bytes = (matmul_scratch_bytes(m->n_cols) + 63) / 64 * 64;
  Memory x_mem(n_tokens * m->n_cols * 4), act_mem(act_q8_bytes(n_tokens * n_terms, m->n_cols));
  Memory out_mem(n_tokens * m->n_rows * 4), scratch(scratch_bytes * n_threads);
  if (!x_mem.data || !act_mem.data || !out_mem.data || !scratch.data) return -1.0;
  float* x = static_cast<float*>(x_mem.data);
  float* out = static_cast<float*>(out_mem.data);
  for (int64_t i = 0; i < n_tokens * m->n_cols; ++i) x[i] = (float)((i * 2654435761u) % 2001) / 1000.0f - 1.0f;
  std::memset(out, 0, (size_t)(n_tokens * m->n_rows * 4));
  ActQ8 act;
  act_q8_bind(&act, act_mem.data, n_tokens, m->n_cols, n_terms);
  const bool q8 = act_kind_of(m->type) == ACT_Q8;
  if (q8) kernels.quantize_rows(x, m->n_cols, &act, 0, n_tokens);
  const int64_t chunk = matmul_chunk_panels(m, n_tokens, n_threads), per_copy = (m->n_panels + chunk - 1) / chunk;
  std::atomic<int64_t> next{0};
  return best_pass(n_threads, n_repeats, [&] { next.store(0); }, [&](int thread) {
    void* mine = static_cast<char*>(scratch.data) + thread * scratch_bytes;
    for (int64_t task = next.fetch_add(1); task < n_copies * per_copy; task = next.fetch_add(1)) {
      PackedMatrix copy = *m;
      copy.data += task / per_copy * m->n_panels * m->panel_bytes;
      const int64_t p0 = task % per_copy * chunk, p1 = p0 + chunk < m->n_panels ? p0 + chunk : m->n_panels;
      if (q8) kernels.mul_q8(&copy, p0, p1, &act, 0, n_tokens, out, m->n_rows, mine);
      else kernels.mul_f32(&copy, p0, p1, x, m->n_cols, 0, n_tokens, out, m->n_rows, mine);
    }
  });
}

uint64_t read_sum_plain(const uint8_t* data, int64_t n_bytes) {
  uint64_t sum[8] = {};
  for (int64_t i = 0; i < n_bytes; i += 64)
    for (int j = 0; j < 8; ++j) {
      uint64_t value;
      std::memcpy(&value, data + i + 8 * j, 8);
      sum[j] += value;
    }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

namespace {

constexpr int64_t READ_BYTES = 131072;  // of one task, as many as one of a product

struct ReadJob {
  const uint8_t* data;
  int64_t n_bytes;
  uint64_t (*sum)(const uint8_t* data, int64_t n_bytes);
  std::atomic<uint64_t> total;  // keeps the sums alive
};

void read_task(void* arg, int64_t task, int) {
  ReadJob& job = *static_cast<ReadJob*>(arg);
  const int64_t at = task * READ_BYTES, left = job.n_bytes - at;
  job.total.fetch_add(job.sum(job.data + at, (left < READ_BYTES ? left : READ_BYTES) / 256 * 256));
}

}  // namespace

double bench_read(ThreadPool* pool, const uint8_t* data, int64_t n_bytes, int n_repeats) {
  ReadJob job{data, n_bytes, read_sum_plain, {0}};
#if defined(__x86_64__) || defined(_M_X64)
  if (isa_best() == ISA_AVX512) job.sum = read_sum_avx512;
#endif
  double best = 1e30;
  for (int repeat = 0; repeat < n_repeats; ++repeat) {
    const double start = now();
    pool->run(read_task, &job, (n_bytes + READ_BYTES - 1) / READ_BYTES);
    const double seconds = now() - start;
    if (seconds < best) best = seconds;
  }
  return best;
}

double bench_peak_int8(int n_threads, int n_repeats) {
#if defined(__x86_64__) || defined(_M_X64)
  if (isa_best() != ISA_AVX512) return 0.0;
  constexpr int64_t rounds = 1000000;
  std::atomic<int32_t> total{0};
  const double seconds =
      best_pass(n_threads, n_repeats, [] {}, [&](int) { total.fetch_add(multiply_registers_avx512(rounds)); });
  return (double)n_threads * rounds * 16 * 64 / seconds;
#else
  (void)n_threads, (void)n_repeats;
  return 0.0;
#endif
}

}  // namespace cext
