from libc.stdint cimport int64_t

cdef extern from "threadpool.h" namespace "cext" nogil:
    ctypedef void (*TaskFn)(void* arg, int64_t task, int ith) noexcept
    cdef cppclass CThreadPool "cext::ThreadPool":
        CThreadPool(int n_threads) except +
        int n_threads()
        void run(TaskFn fn, void* arg, int64_t n_tasks, int n_use)

cdef class ThreadPool:
    cdef CThreadPool* ptr
    cdef readonly int n_threads
