"""What every context computes with: threads, buffers, the abort flag, counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cext.executor import STATUS_ABORTED, STATUS_NOT_FINITE, STATUS_OK, Binding, Program, work_bytes
from cext.threadpool import ThreadPool
from cext.weights import LargeBuffer
from engine.backend.threads import make_pool
from engine.errors import KernelStatusError, OutOfMemoryError, ParamError
from engine.perf import PerfData
from engine.types import I32Array


class ComputeMixin:
    """The part of a context that runs compiled programs.

    Args:
        n_threads, n_threads_batch: for one token, for many.
        load_ms: time the model took to load.

    Attributes:
        abort_flag: i32[1]; non-zero stops what is computed within milliseconds. The caller sets and clears it, from any
            thread.
    """

    def __init__(self, n_threads: int, n_threads_batch: int, load_ms: float) -> None:
        self._n_threads, self._n_threads_batch = n_threads, n_threads_batch
        self._own_pool: ThreadPool | None = None
        self._pools: tuple[ThreadPool, ThreadPool] | None = None
        self._binding = Binding()
        self._arena, self._work = LargeBuffer(0), LargeBuffer(0)
        self._abort_callback: Callable[[], bool] | None = None
        self.abort_flag: I32Array = np.zeros(1, dtype=np.int32)
        self._perf = PerfData(t_load_ms=load_ms)

    # -- threads and callbacks ---------------------------------------------------------------------------------------

    def n_threads(self) -> int:
        """Threads for one token."""
        return self._n_threads

    def n_threads_batch(self) -> int:
        """Threads for many tokens."""
        return self._n_threads_batch

    def set_n_threads(self, n_threads: int, n_threads_batch: int) -> None:
        """Compute with that many threads for one token and for many. Raises: ParamError."""
        if not (1 <= n_threads <= 512 and 1 <= n_threads_batch <= 512):
            raise ParamError(f"n_threads={n_threads}, n_threads_batch={n_threads_batch}: 1 to 512")
        self._n_threads, self._n_threads_batch = n_threads, n_threads_batch
        self._own_pool = None

    def attach_threadpool(self, pool: ThreadPool, pool_batch: ThreadPool | None = None) -> None:
        """Compute with pools that contexts share; those that compute at the same time take turns, loop by loop."""
        self._pools = (pool, pool_batch or pool)

    def detach_threadpool(self) -> None:
        """Compute with the context's own pool again."""
        self._pools = None

    def set_abort_callback(self, callback: Callable[[], bool] | None) -> None:
        """Ask callback at most once a millisecond while computing; True aborts. What it raises, decode raises."""
        self._abort_callback = callback

    def synchronize(self) -> None:
        """Wait until results are there: they always are, for a call returns when it is done."""

    def _pool(self, n_tokens: int) -> tuple[ThreadPool, int]:
        n_threads = self._n_threads if n_tokens == 1 else self._n_threads_batch
        if self._pools is not None:
            pool = self._pools[0 if n_tokens == 1 else 1]
            return pool, min(n_threads, pool.n_threads)
        if self._own_pool is None:
            self._own_pool = make_pool(max(self._n_threads, self._n_threads_batch))
        return self._own_pool, n_threads

    # -- running -----------------------------------------------------------------------------------------------------

    def _reserve(self, plan: Program) -> None:
        """Have buffers that a program fits into. Raises: OutOfMemoryError."""
        n_threads = max(self._n_threads, self._n_threads_batch)
        try:
            if self._arena.nbytes < plan.arena_bytes:
                self._arena = LargeBuffer(plan.arena_bytes)
            if self._work.nbytes < work_bytes(plan, n_threads):
                self._work = LargeBuffer(work_bytes(plan, n_threads))
        except MemoryError:
            raise OutOfMemoryError(plan.arena_bytes, "the compute buffers") from None

    def _run_bound(self, plan: Program, n_tokens: int, call: str) -> bool:
        """Run a program on what is bound: whether it was done; False where the abort flag or callback stopped it.

        Raises: KernelStatusError: values that are not finite.
        """
        pool, n_threads = self._pool(n_tokens)
        binding, callback = self._binding, self._abort_callback
        status = binding.run(plan, pool, n_threads, self._arena, self._work, self.abort_flag, callback)
        if status == STATUS_NOT_FINITE:
            self._raise_not_finite(plan, n_tokens, call)
        if status not in (STATUS_OK, STATUS_ABORTED):
            raise KernelStatusError(f"status {status}", call)
        return status == STATUS_OK

    def _raise_not_finite(self, plan: Program, n_tokens: int, call: str) -> None:
        """Run again, looking for the first stage whose output is not finite. Raises: KernelStatusError."""
        pool, n_threads = self._pool(n_tokens)
        self._binding.run(plan, pool, n_threads, self._arena, self._work, self.abort_flag, None, True)
        failed = self._binding.failed_stage
        raise KernelStatusError("values that are not finite", call, plan.names[failed if failed >= 0 else -1])

    def _release(self) -> None:
        """Let go of threads and buffers."""
        self._binding.release()
        self._arena, self._work = LargeBuffer(0), LargeBuffer(0)
        self._own_pool = self._pools = None

    # -- counters ----------------------------------------------------------------------------------------------------

    def perf_get_data(self) -> PerfData:
        """A copy of the counters."""
        return replace(self._perf)

    def perf_add_reused(self, n_tokens: int) -> None:
        """Count tokens of a prompt that were found in the memory; sessions know how many."""
        self._perf.n_reused += n_tokens

    def perf_reset(self) -> None:
        """Set the counters to zero."""
        self._perf.reset()
