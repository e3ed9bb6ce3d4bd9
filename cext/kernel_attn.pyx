"""Attention over pages, called by itself: for tests and benchmarks. The engine calls the same C functions.

Pages are addresses; the caller keeps their memory alive and answers for the cells that its runs name.
"""

import time

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

from cext.attn cimport (
    AttnCall, AttnKernels, AttnParams, AttnSegment, KVRun, attn_check, attn_kernels_for, attn_n_merge, attn_prepare,
    attn_scratch_bytes, attn_shared_bytes,
)
from cext.rope cimport RopeParams
from cext.threadpool cimport CThreadPool


cdef struct Job:
    const AttnCall* call
    void (*run)(const AttnCall*, int64_t, void*) noexcept nogil
    char* scratch
    int64_t scratch_bytes


cdef void _run_task(void* arg, int64_t task, int ith) noexcept nogil:
    cdef Job* job = <Job*> arg
    job.run(job.call, task, job.scratch + ith * job.scratch_bytes)


cdef class Attention:
    """One layer's attention: its parameters, and the calls.

    Args:
        params: AttnParams' fields by name; `rope` a mapping of RopeParams' fields, or absent.
        sinks: f32[n_head] or None.
        rel_bias: f32[n_head, 2 * rel_max + 1] or None.
        freq_factors: f32[n_rot / 2] or None.
    Raises: ValueError: where the kernels refuse the layer.
    """

    cdef AttnParams p
    cdef const AttnKernels* kernels
    cdef object _keep

    def __init__(self, int isa, dict params, const float[::1] sinks=None, const float[::1] freq_factors=None,
                 const float[:, ::1] rel_bias=None):
        memset(&self.p, 0, sizeof(self.p))
        self._keep = (sinks, freq_factors, rel_bias)
        self.kernels = &attn_kernels_for(isa)
        self.p.n_head, self.p.n_head_kv = params["n_head"], params["n_head_kv"]
        self.p.d_k, self.p.d_v = params["d_k"], params["d_v"]
        self.p.type_k, self.p.type_v = params["type_k"], params["type_v"]
        self.p.k_off, self.p.v_off = params["k_off"], params["v_off"]
        self.p.scale, self.p.softcap = params["scale"], params.get("softcap", 0.0)
        self.p.swa_kind, self.p.n_swa = params.get("swa_kind", 0), params.get("n_swa", 0)
        self.p.causal = params.get("causal", True)
        self.p.max_alibi_bias = params.get("max_alibi_bias", 0.0)
        self.p.v_in_k = params.get("v_in_k", False)
        rope = params.get("rope", {})
        self.p.rope.kind, self.p.rope.n_rot = rope.get("kind", 0), rope.get("n_rot", 0)
        self.p.rope.freq_base, self.p.rope.freq_scale = rope.get("freq_base", 10000.0), rope.get("freq_scale", 1.0)
        self.p.rope.ext_factor, self.p.rope.attn_factor = rope.get("ext_factor", 0.0), rope.get("attn_factor", 1.0)
        self.p.rope.beta_fast, self.p.rope.beta_slow = 32.0, 1.0
        self.p.rope.n_ctx_orig = rope.get("n_ctx_orig", 4096)
        if freq_factors is not None and freq_factors.shape[0]:
            self.p.rope.freq_factors = &freq_factors[0]
        if sinks is not None and sinks.shape[0] == self.p.n_head:
            self.p.sinks = &sinks[0]
        if rel_bias is not None and rel_bias.shape[0] == self.p.n_head and rel_bias.shape[1] % 2 == 1:
            self.p.rel_bias, self.p.rel_max = &rel_bias[0, 0], rel_bias.shape[1] // 2
        if attn_check(&self.p):
            raise ValueError("the attention kernels refuse these parameters")

    def store(self, const float[:, ::1] k not None, const float[:, ::1] v not None, const uint64_t[::1] pages not None,
              const int32_t[::1] cells not None):
        """Write K, f32[n_tokens, n_head_kv * d_k], and V alike to the page and cell of each token; no V within K."""
        cdef Py_ssize_t n = k.shape[0]
        if v.shape[0] != n or pages.shape[0] != n or cells.shape[0] != n:
            raise ValueError("k, v, pages and cells differ in length")
        if k.shape[1] != self.p.n_head_kv * self.p.d_k or v.shape[1] != self.p.n_head_kv * self.p.d_v:
            raise ValueError("k or v has the wrong width")
        cdef const float* values = NULL
        if n:
            if not self.p.v_in_k:
                values = &v[0, 0]
            self.kernels.store(&self.p, &k[0, 0], k.shape[1], values, v.shape[1], <uint8_t**> &pages[0], &cells[0], 0, n)

    def run(self, q, pos, segments, runs, int n_threads=1, int n_ctx=4096, bint is_reversed=False):
        """Attend. Returns out, f32[n_tokens, n_head * d_v], and the numbers of tasks of the two phases.

        Args:
            q: f32[n_tokens, n_head * d_k], rotated to pos, i32[n_tokens].
            segments: i64[n_segments, 4]: t0, n_tokens, run0, n_runs.
            runs: u8[n_runs, 32]: KVRun records.
            n_threads: what the plan is made for; the tasks are done one after the other.
            is_reversed: do the tasks from last to first.
        """
        cdef _Call call = _Call(self, q, pos, segments, runs, n_threads, n_ctx)
        cdef int64_t i, n_tasks, n_merge
        with nogil:
            n_tasks = attn_prepare(&call.c, n_threads)
            n_merge = attn_n_merge(&call.c)
            for i in range(n_tasks):
                self.kernels.task(&call.c, n_tasks - 1 - i if is_reversed else i, call.job.scratch)
            for i in range(n_merge):
                self.kernels.merge(&call.c, n_merge - 1 - i if is_reversed else i, call.job.scratch)
        return call.out, (n_tasks, n_merge)

    def measure(self, q, pos, segments, runs, int n_threads, int n_ctx, int n_repeats):
        """Attend n_repeats times on a pool of n_threads. Returns the seconds of each.

        One thread: its processor time, which other work on the machine lengthens least; several: time of the clock.
        """
        cdef _Call call = _Call(self, q, pos, segments, runs, n_threads, n_ctx)
        cdef CThreadPool* pool = new CThreadPool(n_threads)
        cdef int64_t n_tasks, n_merge
        clock = time.thread_time if n_threads == 1 else time.perf_counter
        seconds = []
        for _ in range(n_repeats):
            started = clock()
            with nogil:
                n_tasks = attn_prepare(&call.c, n_threads)
                n_merge = attn_n_merge(&call.c)
                call.job.run = self.kernels.task
                pool.run(_run_task, &call.job, n_tasks, 0)
                call.job.run = self.kernels.merge
                if n_merge:
                    pool.run(_run_task, &call.job, n_merge, 0)
            seconds.append(clock() - started)
        del pool
        return seconds


cdef class _Call:
    """The C record of one call and all the memory that it points to."""

    cdef AttnCall c
    cdef Job job
    cdef AttnSegment[64] segments
    cdef readonly object out
    cdef object _keep

    def __init__(self, Attention layer, const float[:, ::1] q not None, const int32_t[::1] pos not None,
                 const int64_t[:, ::1] segments not None, const uint8_t[:, ::1] runs not None, int n_threads,
                 int n_ctx):
        cdef Py_ssize_t i, n = q.shape[0]
        if segments.shape[0] > 64 or segments.shape[1] != 4 or runs.shape[1] != 32 or pos.shape[0] != n or n == 0:
            raise ValueError("segments, runs or pos have the wrong shape")
        if q.shape[1] != layer.p.n_head * layer.p.d_k:
            raise ValueError("q has the wrong width")
        for i in range(segments.shape[0]):
            self.segments[i].t0, self.segments[i].n_tokens = <int32_t> segments[i, 0], <int32_t> segments[i, 1]
            self.segments[i].run0, self.segments[i].n_runs = segments[i, 2], segments[i, 3]
        self.out = np.full((n, layer.p.n_head * layer.p.d_v), np.nan, np.float32)
        cdef float[:, ::1] out = self.out
        self.c.p, self.c.n_tokens = &layer.p, n
        self.c.q, self.c.ld_q, self.c.pos = &q[0, 0], q.shape[1], &pos[0]
        self.c.segments, self.c.n_segments = self.segments, segments.shape[0]
        self.c.runs = <const KVRun*> &runs[0, 0] if runs.shape[0] else NULL
        self.c.out, self.c.ld_out = &out[0, 0], out.shape[1]
        self.c.shared_bytes = attn_shared_bytes(&layer.p, n, n_ctx)
        self.job.call, self.job.scratch_bytes = &self.c, attn_scratch_bytes(&layer.p)
        # NUMERICS: filled with NaN patterns, so that a kernel which reads what nothing wrote is seen.
        shared = np.full(self.c.shared_bytes + 64, 0xFF, np.uint8)
        scratch = np.full(self.job.scratch_bytes * n_threads + 64, 0xFF, np.uint8)
        self.c.shared = <void*> (<uint64_t> shared.ctypes.data + 63 & ~<uint64_t> 63)
        self.job.scratch = <char*> (<uint64_t> scratch.ctypes.data + 63 & ~<uint64_t> 63)
        self._keep = (layer, q, pos, runs, shared, scratch)
