"""The engine's thread pool. Stands under the executor; may be shared by contexts."""


cdef class ThreadPool:
    """Threads that wait for the executor's work.

    Args:
        n_threads: workers including the thread that calls; 1 to 512.

    Raises:
        ValueError: n_threads out of range.

    Thread: any; callers take turns, loop by loop.
    """

    def __cinit__(self, int n_threads):
        if n_threads < 1 or n_threads > 512:
            raise ValueError(f"n_threads={n_threads}: 1 to 512")
        self.ptr = new CThreadPool(n_threads)
        self.n_threads = n_threads

    def __dealloc__(self):
        del self.ptr
