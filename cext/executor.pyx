"""Compiled programs: built stage by stage from Python, run in one call without the GIL.

Stands between `engine.backend.cpu` (which lowers graphs) and the kernels. Sizes and places are checked here once, when a
program is built; a run only checks what it is bound to.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from cext.attn cimport AttnParams, AttnSegment, KVRun
from cext.program cimport (
    BlockSize, CProgram, CacheBinding, MAX_CACHES, MappedRows, MatmulItem, Operand, RecurrentParams, RowOp,
    RunBinding, Stage, StateSegment, block_size_of, isa_best, isa_force, isa_in_use, isa_name, program_run,
    recurrent_n_inputs, recurrent_state_values, stage_set_kind,
)
from cext.rope cimport RopeParams
from cext.threadpool cimport ThreadPool
from cext.weights cimport LargeBuffer, PackedWeight

STATUS_OK = 0
STATUS_ABORTED = 1
STATUS_NOT_FINITE = 5


def isa():
    """The name of the instruction set in use: "scalar", "avx2" or "avx512"."""
    return isa_name(isa_in_use()).decode()


def isas():
    """The names of all instruction sets that this CPU can run, slowest first."""
    return [isa_name(i).decode() for i in range(isa_best() + 1)]


def force_isa(str name):
    """Use another instruction set, for tests. Raises: ValueError: where this CPU cannot run it."""
    if name not in isas() or isa_force(isas().index(name)) != 0:
        raise ValueError(f"this CPU cannot run {name!r}")


cdef Operand operand(tuple place) except *:
    cdef Operand o
    o.space, o.slot, o.offset, o.ld = place
    return o


cdef const float* pointer(object values, int64_t n, list keep) except? NULL:
    """The address of f32[n], kept alive; NULL for None."""
    if values is None:
        return NULL
    cdef const float[::1] view = values
    if view.shape[0] != n:
        raise ValueError(f"{view.shape[0]} values where {n} are needed")
    keep.append(values)
    return &view[0]


cdef class Program:
    """One compiled graph. Methods add its parts in order; `finish` closes it.

    A place is a tuple (space, slot, byte offset, values from row to row): space 1 the arena, 2 a slot bound at run time.
    """

    cdef CProgram c
    cdef list _keep
    cdef readonly list names
    cdef readonly int64_t arena_bytes
    cdef readonly int64_t slot_bytes  # of recurrent state that it reads and writes
    cdef readonly int n_caches
    cdef readonly int rope_axes  # positions of a token: 4 or 1; 0 where nothing is rotated

    def __cinit__(self):
        self._keep = []
        self.names = []

    def add_rope(self, int kind, int n_rot, float freq_base, float freq_scale, float ext_factor, float attn_factor,
                 float beta_fast, float beta_slow, int n_ctx_orig, factors, tuple sections=()):
        """Rope parameters; factors f32[n_rot / 2] or None; sections as in RopeParams. Returns their index.

        All ropes of a program have sections, or none has: their tokens have four positions, or one.
        """
        cdef int n_axes = 4 if sections else 1
        if self.rope_axes not in (0, n_axes) or len(sections) > 4 or min(sections, default=0) < 0 or (
                sections and 2 * sum(sections) != n_rot):
            raise ValueError(f"sections {sections} of {n_rot} dimensions")
        self.rope_axes = n_axes
        cdef RopeParams p
        _fill_rope(&p, kind, n_rot, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow, n_ctx_orig)
        for i, n in enumerate(sections):
            p.sections[i] = n
        p.freq_factors = pointer(factors, n_rot // 2, self._keep)
        self.c.ropes.push_back(p)
        return self.c.ropes.size() - 1

    def add_attn(self, int cache, int n_head, int n_head_kv, int d_k, int d_v, int type_k, int type_v, int64_t k_off,
                 int64_t v_off, float scale, float softcap, int swa_kind, int n_swa, bint causal, float max_alibi_bias,
                 sinks, rel_bias, int64_t rel_max, int rope, bint v_in_k=False):
        """One layer's attention. Returns its index.

        Args:
            v_in_k: v_off is that of V in K's row, and nothing else is stored.
            sinks: f32[n_head] or None.
            rel_bias: f32[n_head * (2 * rel_max + 1)] or None: added to scores by relative position.
            rope: index or -1.
        """
        if cache < 0 or cache >= MAX_CACHES:
            raise ValueError(f"cache {cache}")
        cdef AttnParams p
        p.n_head, p.n_head_kv, p.d_k, p.d_v = n_head, n_head_kv, d_k, d_v
        p.type_k, p.type_v, p.k_off, p.v_off = type_k, type_v, k_off, v_off
        p.scale, p.softcap, p.swa_kind, p.n_swa = scale, softcap, swa_kind, n_swa
        p.causal, p.max_alibi_bias, p.v_in_k = causal, max_alibi_bias, v_in_k
        p.sinks = pointer(sinks, n_head, self._keep)
        p.rel_bias, p.rel_max = pointer(rel_bias, n_head * (2 * rel_max + 1), self._keep), rel_max
        if rope >= 0:
            p.rope = self.c.ropes[rope]
        else:
            _fill_rope(&p.rope, 0, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0, 0)
        self.c.attns.push_back(p)
        self.c.attn_cache.push_back(cache)
        self.n_caches = max(self.n_caches, cache + 1)
        return self.c.attns.size() - 1

    def add_table(self, PackedWeight weight not None):
        """A packed matrix whose rows are looked up. Returns its index."""
        self._keep.append(weight)
        self.c.tables.push_back(weight.matrix)
        return self.c.tables.size() - 1

    def add_mapped(self, int type, int64_t n_rows, int64_t n_cols, const uint8_t[::1] data not None):
        """A matrix as it lies in the file, whose rows are looked up. Returns its index."""
        cdef BlockSize block = block_size_of(type)
        cdef MappedRows m
        if block.elements == 0 or n_cols % block.elements:
            raise ValueError(f"type {type} with rows of {n_cols}")
        m.type, m.n_rows, m.n_cols = type, n_rows, n_cols
        m.row_bytes = n_cols // block.elements * block.bytes
        if data.shape[0] < n_rows * m.row_bytes:
            raise ValueError(f"{data.shape[0]} bytes do not hold {n_rows} rows of {m.row_bytes}")
        m.data = &data[0]
        self._keep.append(data)
        self.c.mapped.push_back(m)
        return self.c.mapped.size() - 1

    def begin_rows(self, bint rows_are_outputs, int row_factor, str name):
        """A stage of row operations; `row_op` adds to it. Rows are tokens or outputs, times row_factor."""
        self._begin(0, rows_are_outputs, row_factor, name)

    def row_op(self, int kind, int arg, int64_t n, int64_t n_sub, int64_t n_rot, float f, tuple x, tuple y, tuple z, tuple out,
               w=None, b=None, int64_t n_w=0):
        """Append an operation to the stage that was begun last."""
        cdef RowOp op
        op.kind, op.arg, op.n, op.n_sub, op.n_rot, op.f = kind, arg, n, n_sub, n_rot, f
        op.x, op.y, op.z, op.out = operand(x), operand(y), operand(z), operand(out)
        op.w = pointer(w, n_w, self._keep)
        op.b = pointer(b, n_w, self._keep)
        self.c.stages.back().ops.push_back(op)

    def sort(self, bint rows_are_outputs, str name, int n_expert, int n_used, tuple ids, tuple token_of, tuple sorted_of,
             tuple offsets):
        """A stage that sorts (token, j) pairs by the expert ids[token, j]: i32[rows, n_used]."""
        self._begin(3, rows_are_outputs, n_used, name)
        cdef Stage* stage = &self.c.stages.back()
        stage.n_expert = n_expert
        stage.x, stage.token_of = operand(ids), operand(token_of)
        stage.sorted_of, stage.offsets = operand(sorted_of), operand(offsets)

    def matmul(self, bint rows_are_outputs, str name, bint is_q8, tuple x, items, int glu, int row_factor=1,
               tuple offsets=None):
        """A stage of products of x with the items' matrices.

        Args:
            is_q8: x is in the 8-bit form.
            items: (PackedWeight, bias f32[n_rows] or None, place) each, all with the same n_cols.
            glu: activation number: items are gate and up, act(gate) * up goes to the gate's place; or -1.
            offsets: where the first row of each expert stands, for matrices with experts; rows are sorted pairs then.
        """
        cdef MatmulItem item
        cdef PackedWeight weight
        self._begin(1, rows_are_outputs, row_factor, name)
        cdef Stage* stage = &self.c.stages.back()
        stage.x = operand(x)
        stage.is_q8 = is_q8
        stage.glu = glu
        if not items or (glu >= 0 and len(items) != 2):
            raise ValueError(f"{name}: {len(items)} matrices")
        for weight, bias, out in items:
            item.matrix = weight.matrix
            if item.matrix.n_cols != (<PackedWeight>items[0][0]).matrix.n_cols:
                raise ValueError(f"{name}: matrices of different widths")
            item.expert_bytes = weight.expert_bytes
            if (offsets is not None) != (weight.n_expert > 0):
                raise ValueError(f"{name}: experts where none are wanted, or none where they are")
            item.bias = pointer(bias, item.matrix.n_rows * max(1, weight.n_expert), self._keep)
            item.out = operand(out)
            self._keep.append(weight)
            stage.items.push_back(item)
        if offsets is not None:
            stage.n_expert = (<PackedWeight>items[0][0]).n_expert
            stage.offsets = operand(offsets)
        if glu >= 0 and stage.items[0].matrix.n_rows != stage.items[1].matrix.n_rows:
            raise ValueError(f"{name}: gate and up differ")

    def matmul_heads(self, bint rows_are_outputs, str name, tuple x, PackedWeight weight not None, tuple out):
        """A stage in which matrix e of the weight multiplies the e-th part of every row of x, in f32."""
        if not weight.n_expert:
            raise ValueError(f"{name}: one matrix where one a head is needed")
        self._begin(1, rows_are_outputs, 1, name)
        cdef Stage* stage = &self.c.stages.back()
        cdef MatmulItem item
        item.matrix, item.expert_bytes, item.out = weight.matrix, weight.expert_bytes, operand(out)
        item.bias = NULL
        stage.x, stage.n_expert, stage.per_head = operand(x), weight.n_expert, 1
        stage.items.push_back(item)
        self._keep.append(weight)

    def attn(self, str name, int attn, tuple q, tuple out):
        """A stage of attention: q f32[n_tokens, n_head * d_k] -> out f32[n_tokens, n_head * d_v]."""
        if attn < 0 or <size_t>attn >= self.c.attns.size():
            raise ValueError(f"attention {attn}")
        self._begin(2, False, 1, name)
        cdef Stage* stage = &self.c.stages.back()
        stage.attn = attn
        stage.x = operand(q)
        stage.out = operand(out)

    def recurrent(self, str name, int kind, int arg, int64_t n_head, int64_t d_k, int64_t d_v, int64_t n_group,
                  int64_t state_off, inputs, tuple out, w=None, int64_t n_w=0, b=None, int64_t n_b=0):
        """A stage of a recurrence over each sequence's tokens (cext/src/recurrent.h has kinds, sizes and inputs).

        Args:
            state_off: where its state stands in a slot, in bytes.
            w, b: f32[n_w] and f32[n_b] or None.
        """
        cdef RecurrentParams p
        p.kind, p.arg, p.n_head, p.d_k, p.d_v, p.n_group = kind, arg, n_head, d_k, d_v, n_group
        p.state_off = state_off
        p.w, p.b = pointer(w, n_w, self._keep), pointer(b, n_b, self._keep)
        if len(inputs) != recurrent_n_inputs(kind) or not inputs:
            raise ValueError(f"{name}: {len(inputs)} inputs of recurrence {kind}")
        if min(n_head, d_k, d_v, n_group) < 1 or n_head % n_group or state_off < 0 or state_off % 4:
            raise ValueError(f"{name}: sizes of recurrence {kind}")
        self._begin(4, False, 1, name)
        cdef Stage* stage = &self.c.stages.back()
        cdef int i
        for i in range(len(inputs)):
            stage.inputs[i] = operand(inputs[i])
        stage.out = operand(out)
        stage.recurrent = self.c.recurrents.size()
        self.c.recurrents.push_back(p)
        self.slot_bytes = max(self.slot_bytes, state_off + 4 * recurrent_state_values(&p))

    def finish(self, int64_t n_tokens_max, int64_t n_ctx, int64_t arena_bytes):
        """Close the program for micro batches of up to n_tokens_max. Raises: ValueError: a layer without a kernel."""
        self.c.n_tokens_max, self.c.n_ctx, self.arena_bytes = n_tokens_max, n_ctx, arena_bytes
        if self.c.finish() != 0:
            raise ValueError("attention: head sizes or cache types without a kernel")

    @property
    def n_stages(self):
        """Loops with a barrier behind them."""
        return self.c.stages.size()

    @property
    def stage_ns(self):
        """Nanoseconds spent in (row work, products, attention and recurrences) since the program was built."""
        return self.c.stage_ns[0] + self.c.stage_ns[3], self.c.stage_ns[1], self.c.stage_ns[2] + self.c.stage_ns[4]

    @property
    def scratch_bytes(self):
        """Bytes each thread needs."""
        return self.c.scratch_bytes

    @property
    def shared_bytes(self):
        """Bytes that attention shares between threads."""
        return self.c.shared_bytes

    cdef _begin(self, int kind, bint rows_are_outputs, int row_factor, str name):
        cdef Stage stage
        stage_set_kind(stage, kind)
        stage.rows_are_outputs = rows_are_outputs
        stage.row_factor = row_factor
        stage.name = len(self.names)
        self.names.append(name)
        self.c.stages.push_back(stage)


cdef void _fill_rope(RopeParams* p, int kind, int n_rot, float freq_base, float freq_scale, float ext_factor,
                     float attn_factor, float beta_fast, float beta_slow, int n_ctx_orig) noexcept:
    p.kind, p.n_rot, p.freq_base, p.freq_scale = kind, n_rot, freq_base, freq_scale
    p.ext_factor, p.attn_factor, p.beta_fast, p.beta_slow = ext_factor, attn_factor, beta_fast, beta_slow
    p.n_ctx_orig = n_ctx_orig
    p.sections[:] = [0, 0, 0, 0]
    p.freq_factors = NULL


cdef int call_poll(void* arg) noexcept with gil:
    """Ask the Python abort callback; an exception in it stops the run and is kept for `Binding.run`."""
    cdef Binding binding = <Binding>arg
    try:
        return 1 if binding.poll() else 0
    except BaseException as error:
        binding.poll_error = error
        return 1


cdef class Binding:
    """What a run works on: the micro batch, the caches' cells, the arena. One per context, bound anew for each run.

    Attributes:
        failed_stage: the stage whose output was not finite, where a run was asked to look.
        poll_period_ns: how often the abort callback is asked at most: once a millisecond; 0: behind every stage.
    """

    cdef RunBinding c
    cdef Py_buffer views[7 + 4 * 4 + 1]  # slots, what MAX_CACHES bind, states
    cdef int n_views
    cdef int n_caches  # that are bound
    cdef LargeBuffer arena
    cdef LargeBuffer work
    cdef object poll
    cdef object poll_error
    cdef readonly int64_t failed_stage
    cdef public int64_t poll_period_ns
    cdef int rope_axes

    def __cinit__(self):
        self.n_views = 0
        self.poll_period_ns = 1000000

    def __dealloc__(self):
        self.release()

    def release(self):
        """Let go of everything that was bound."""
        while self.n_views > 0:
            self.n_views -= 1
            PyBuffer_Release(&self.views[self.n_views])

    cdef void* _view(self, object values, int64_t n_bytes, bint writable, str what) except? NULL:
        cdef Py_buffer* view = &self.views[self.n_views]
        PyObject_GetBuffer(values, view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.n_views += 1
        if view.len < n_bytes:
            raise ValueError(f"{what}: {view.len} bytes where {n_bytes} are needed")
        return view.buf

    def bind(self, int64_t n_tokens, int64_t n_outputs, tokens, embd, int64_t n_embd, pos, rope_pos, out_ids, logits,
             int64_t n_vocab, int64_t logits_row, embd_out, int64_t n_embd_out):
        """Bind a micro batch; what was bound before is let go.

        Args:
            tokens: IN i32[n_tokens] or None; embd: IN f32[n_tokens, n_embd] or None.
            pos: IN i32[n_tokens]; out_ids: IN i32[n_outputs].
            rope_pos: IN i32[n_tokens], or i32[n_tokens, 4] for ropes with sections: positions to rotate by.
            logits: OUT f32[rows, n_vocab] or None, written from row logits_row; embd_out alike.
        """
        self.release()
        self.n_caches = 0
        self.c.n_tokens, self.c.n_outputs, self.c.n_vocab = n_tokens, n_outputs, n_vocab
        self.c.states = NULL
        self.c.n_states = 0
        cdef int i
        for i in range(7):
            self.c.slots[i] = NULL
        if tokens is not None:
            self.c.slots[0] = self._view(tokens, 4 * n_tokens, False, "tokens")
        if embd is not None:
            self.c.slots[1] = self._view(embd, 4 * n_tokens * n_embd, False, "embd")
        self.c.slots[2] = self._view(pos, 4 * n_tokens, False, "pos")
        self.rope_axes = 1 if rope_pos.ndim == 1 else rope_pos.shape[1]
        self.c.slots[6] = self._view(rope_pos, 4 * n_tokens * self.rope_axes, False, "rope_pos")
        if n_outputs:
            self.c.slots[3] = self._view(out_ids, 4 * n_outputs, False, "out_ids")
            if logits is not None:
                self.c.slots[4] = <float*>self._view(
                    logits, 4 * (logits_row + n_outputs) * n_vocab, True, "logits") + logits_row * n_vocab
            if embd_out is not None:
                self.c.slots[5] = <float*>self._view(
                    embd_out, 4 * (logits_row + n_outputs) * n_embd_out, True, "embd_out") + logits_row * n_embd_out

    def bind_cache(self, int i, pages, cells, runs, segments, int64_t n_segments):
        """Bind one cache's cells: pages u64[n_tokens], cells i32[n_tokens], runs KVRun[...], segments AttnSegment[n]."""
        if i != self.n_caches or i >= MAX_CACHES:
            raise ValueError(f"cache {i} behind {self.n_caches} others")
        self.n_caches += 1
        cdef CacheBinding* cache = &self.c.caches[i]
        cache.pages = <uint8_t**>self._view(pages, 8 * self.c.n_tokens, False, "pages")
        cache.cells = <const int32_t*>self._view(cells, 4 * self.c.n_tokens, False, "cells")
        cache.runs = <const KVRun*>self._view(runs, 0, False, "runs")
        cache.segments = <const AttnSegment*>self._view(segments, 24 * n_segments, False, "segments")
        cache.n_segments = n_segments

    def bind_states(self, states):
        """Bind the slots that recurrences go on from: StateSegment[n], 4 x u64 each (first token, tokens, source, target).

        Source 0 stands for zeros; source and target are addresses of slots that the caller keeps.
        """
        cdef const uint64_t[:, ::1] rows = states
        cdef Py_ssize_t i
        if rows.shape[1] != 4:
            raise ValueError(f"states: rows of {rows.shape[1]}")
        for i in range(rows.shape[0]):
            if rows[i, 3] == 0 or rows[i, 1] < 1 or rows[i, 0] + rows[i, 1] > <uint64_t>self.c.n_tokens:
                raise ValueError(f"states: segment {i}")
        self.c.states = <const StateSegment*>self._view(states, 32 * rows.shape[0], False, "states")
        self.c.n_states = rows.shape[0]

    def run(self, Program program not None, ThreadPool pool not None, int n_threads, LargeBuffer arena not None,
            LargeBuffer work not None, abort_flag, poll=None, bint check=False):
        """Run the program on what is bound, without the GIL.

        Args:
            arena, work: memory of at least program.arena_bytes, and work_bytes(program, n_threads).
            abort_flag: i32[1]: non-zero stops the run.
            poll: called at most once in poll_period_ns; a true answer stops the run.
            check: look for values that are not finite behind each stage.

        Returns:
            A status; `failed_stage` has the stage where it is STATUS_NOT_FINITE.
        """
        if self.c.n_tokens > program.c.n_tokens_max or n_threads < 1 or n_threads > pool.n_threads:
            raise ValueError("more tokens or threads than the program was made for")
        if arena.nbytes < program.arena_bytes or work.nbytes < work_bytes(program, n_threads):
            raise ValueError("arena or work memory is too small")
        if program.rope_axes not in (0, self.rope_axes):
            raise ValueError(f"{self.rope_axes} positions a token where {program.rope_axes} are needed")
        if program.n_caches > self.n_caches:
            raise ValueError(f"a program with {program.n_caches} caches, {self.n_caches} are bound")
        if program.slot_bytes and not self.c.n_states:
            raise ValueError("a program with recurrences needs states")
        cdef const int32_t[::1] flag = abort_flag
        self.c.abort_flag = &flag[0]
        self.c.arena = arena.ptr
        self.c.check = check
        self.c.n_threads = n_threads
        self.poll = poll
        self.poll_error = None
        if poll is not None:
            self.c.poll = call_poll
        else:
            self.c.poll = NULL
        self.c.poll_arg = <void*>self
        self.c.poll_period_ns = self.poll_period_ns
        cdef uint8_t* shared = work.ptr
        cdef uint8_t* scratch = work.ptr + program.c.shared_bytes
        cdef int status
        with nogil:
            status = program_run(&program.c, &self.c, pool.ptr, scratch, shared, &self.failed_stage)
        if self.poll_error is not None:
            raise self.poll_error
        return status


def work_bytes(Program program not None, int n_threads):
    """Bytes of work memory that a run with n_threads needs."""
    return program.c.shared_bytes + n_threads * program.c.scratch_bytes
