// What this machine's limits are, and how near the products come: for the benchmark scripts.
#pragma once
#include <cstdint>

#include "matmul.h"
#include "threadpool.h"

namespace cext {

// Seconds of the best of n_repeats passes over n_copies matrices that lie one after another from m->data: every one times
// n_tokens tokens, shared among n_threads threads in chunks of matmul_chunk_panels. Negative without memory.
double bench_mul(Isa isa, const PackedMatrix* m, int64_t n_copies, int64_t n_tokens, int n_threads, int n_repeats);
// Seconds of the best of n_repeats plain reads (vector sums) of n_bytes, shared among the pool's threads.
double bench_read(ThreadPool* pool, const uint8_t* data, int64_t n_bytes, int n_repeats);
// Multiply-adds of bytes a second of n_threads threads that do nothing else, from registers. 0 without VNNI.
double bench_peak_int8(int n_threads, int n_repeats);

// A sum over n_bytes (a multiple of 256), and n_rounds times 16 independent products of 64 bytes.
uint64_t read_sum_plain(const uint8_t* data, int64_t n_bytes);
uint64_t read_sum_avx512(const uint8_t* data, int64_t n_bytes);
int32_t multiply_registers_avx512(int64_t n_rounds);

}  // namespace cext
