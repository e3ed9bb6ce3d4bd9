// The engine's own threads: a parallel loop with chunks claimed dynamically, a brief spin and then sleep, and a cancel flag.
// Callers take turns, loop by loop. The calling thread is worker 0. Helpers run below the window's priority with denormals flushed.
#pragma once
#include <cstdint>

namespace cext {

// One task of a loop. `ith` is the worker that runs it: 0 <= ith < n_threads.
using TaskFn = void (*)(void* arg, int64_t task, int ith);

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;
  // Run fn for every task in [0, n_tasks); returns when all are done. At most n_use workers take part (0 = all).
  void run(TaskFn fn, void* arg, int64_t n_tasks, int n_use = 0);

 private:
  struct Impl;
  Impl* impl_;
};

}  // namespace cext
