// See threadpool.h. A job is published in one 64-bit word: sequence number, number of tasks and next task together, so that a
// worker that comes late can only claim a task of the job that is running, never one of a job that is over.
#include "threadpool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace cext {
namespace {

constexpr int TASK_BITS = 24;  // tasks of one loop; longer loops are cut
constexpr int64_t MAX_TASKS = (int64_t(1) << TASK_BITS) / 2;
constexpr uint64_t TASK_MASK = (uint64_t(1) << TASK_BITS) - 1;
constexpr int SPIN_ROUNDS = 4000;  // some 200 microseconds of pauses, longer than the gap between two tokens
constexpr int NICENESS = 1;        // helpers give way to the window

inline void pause_cpu() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
  __asm__ volatile("yield");
#endif
}

// Subnormal numbers cost a hundred cycles each; in a reply they mean zero.
class FlushDenormals {
 public:
#if defined(__x86_64__) || defined(_M_X64)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#endif
};

void lower_priority() {
#if defined(__linux__)
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), NICENESS);
#endif
}

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int n) : n_threads(n < 1 ? 1 : n) {
    try {
      for (int ith = 1; ith < n_threads; ++ith) threads.emplace_back([this, ith] { work(ith); });
    } catch (...) {  // the system starts no more; those that run would bring the program down with them
      end();
      throw;
    }
  }

  ~Impl() { end(); }

  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      stopping.store(true);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  // The two slots alternate: a slot is written again only after the job between has ended.
  struct Job {
    TaskFn fn;
    void* arg;
    std::atomic<int64_t> n_done{0};
  };

  // Claim tasks of the current job until none is left.
  void help(int ith) {
    for (;;) {
      uint64_t seen = state.load(std::memory_order_acquire);
      if ((seen & TASK_MASK) >= ((seen >> TASK_BITS) & TASK_MASK)) return;
      if (!state.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
      Job& job = jobs[(seen >> (2 * TASK_BITS)) & 1];
      job.fn(job.arg, static_cast<int64_t>(seen & TASK_MASK), ith);
      job.n_done.fetch_add(1, std::memory_order_acq_rel);
    }
  }

  bool has_work(int ith) const {
    const uint64_t seen = state.load(std::memory_order_acquire);
    return (seen & TASK_MASK) < ((seen >> TASK_BITS) & TASK_MASK) && ith < n_use.load(std::memory_order_relaxed);
  }

  void work(int ith) {
    lower_priority();
    FlushDenormals flush;
    while (!stopping.load(std::memory_order_relaxed)) {
      int round = 0;
      while (round < SPIN_ROUNDS && !has_work(ith) && !stopping.load(std::memory_order_relaxed)) {
        pause_cpu();
        ++round;
      }
      if (has_work(ith)) {
        help(ith);
        continue;
      }
      std::unique_lock<std::mutex> lock(mutex);
      n_asleep.fetch_add(1);
      wake.wait(lock, [&] { return stopping.load() || has_work(ith); });
      n_asleep.fetch_sub(1);
    }
  }

  void run(TaskFn fn, void* arg, int64_t n_tasks, int use) {
    ++sequence;
    Job& job = jobs[sequence & 1];
    job.fn = fn;
    job.arg = arg;
    job.n_done.store(0, std::memory_order_relaxed);
    n_use.store(use, std::memory_order_relaxed);
    state.store((sequence << (2 * TASK_BITS)) | (static_cast<uint64_t>(n_tasks) << TASK_BITS));
    if (n_asleep.load() > 0) {
      std::lock_guard<std::mutex> lock(mutex);
      wake.notify_all();
    }
    help(0);
    int round = 0;
    while (job.n_done.load(std::memory_order_acquire) < n_tasks) {
      pause_cpu();
      if (++round > SPIN_ROUNDS) std::this_thread::yield();
    }
  }

  const int n_threads;
  std::vector<std::thread> threads;
  std::mutex callers;  // held by the one whose loop runs
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<int> n_asleep{0};
  std::atomic<bool> stopping{false};
  std::atomic<int> n_use{1};
  Job jobs[2];
  uint64_t sequence = 0;  // the caller's
  alignas(64) std::atomic<uint64_t> state{0};
};

ThreadPool::ThreadPool(int n_threads) : impl_(new Impl(n_threads)) {}
ThreadPool::~ThreadPool() { delete impl_; }
int ThreadPool::n_threads() const { return impl_->n_threads; }

void ThreadPool::run(TaskFn fn, void* arg, int64_t n_tasks, int n_use) {
  if (n_tasks <= 0) return;
  const int use = n_use <= 0 || n_use > impl_->n_threads ? impl_->n_threads : n_use;
  FlushDenormals flush;
  if (use == 1 || n_tasks == 1 || n_tasks > MAX_TASKS) {
    for (int64_t task = 0; task < n_tasks; ++task) fn(arg, task, 0);
    return;
  }
  std::lock_guard<std::mutex> turn(impl_->callers);
  impl_->run(fn, arg, n_tasks, use);
}

}  // namespace cext
