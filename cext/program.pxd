"""The compiled core's programs as `cext.executor` sees them."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp.vector cimport vector

from cext.attn cimport AttnParams, AttnSegment, KVRun
from cext.matmul cimport PackedMatrix
from cext.rope cimport RopeParams
from cext.threadpool cimport CThreadPool

cdef extern from "recurrent.h" namespace "cext" nogil:
    cdef struct RecurrentParams:
        int32_t kind
        int32_t arg
        int64_t n_head
        int64_t d_k
        int64_t d_v
        int64_t n_group
        int64_t state_off
        const float* w
        const float* b
    cdef struct StateSegment:
        int64_t t0
        int64_t n_tokens
        const uint8_t* source
        uint8_t* target
    int recurrent_n_inputs(int32_t kind)
    int64_t recurrent_state_values(const RecurrentParams* p)

cdef extern from "executor.h" namespace "cext" nogil:
    cdef struct Operand:
        int32_t space
        int32_t slot
        int64_t offset
        int64_t ld
    cdef struct RowOp:
        int32_t kind
        int32_t arg
        int64_t n
        int64_t n_sub
        int64_t n_rot
        float f
        Operand x
        Operand y
        Operand z
        Operand out
        const float* w
        const float* b
    cdef struct MatmulItem:
        PackedMatrix matrix
        int64_t expert_bytes
        const float* bias
        Operand out
    cdef struct MappedRows:
        int32_t type
        int64_t row_bytes
        int64_t n_cols
        int64_t n_rows
        const uint8_t* data
    cdef cppclass Stage:
        int kind
        int32_t rows_are_outputs
        int32_t row_factor
        int32_t name
        vector[RowOp] ops
        vector[MatmulItem] items
        Operand x
        Operand out
        int32_t is_q8
        int32_t glu
        int32_t n_expert
        int32_t per_head
        Operand token_of
        Operand sorted_of
        Operand offsets
        int32_t attn
        int32_t recurrent
        Operand* inputs
    cdef struct CacheBinding:
        uint8_t** pages
        const int32_t* cells
        const KVRun* runs
        const AttnSegment* segments
        int64_t n_segments
    cdef struct RunBinding:
        int64_t n_tokens
        int64_t n_outputs
        int64_t n_vocab
        void** slots
        CacheBinding* caches
        const StateSegment* states
        int64_t n_states
        uint8_t* arena
        const int32_t* abort_flag
        int (*poll)(void*) noexcept
        void* poll_arg
        int64_t poll_period_ns
        int32_t check
        int32_t n_threads
    cdef cppclass CProgram "cext::Program":
        vector[Stage] stages
        vector[AttnParams] attns
        vector[int32_t] attn_cache
        vector[RopeParams] ropes
        vector[RecurrentParams] recurrents
        vector[PackedMatrix] tables
        vector[MappedRows] mapped
        int64_t n_tokens_max
        int64_t n_ctx
        int64_t scratch_bytes
        int64_t shared_bytes
        int64_t* stage_ns
        int finish()
    int program_run(CProgram* program, const RunBinding* run, CThreadPool* pool, void* scratch, void* shared,
                    int64_t* failed_stage)
    cdef enum:
        MAX_CACHES

cdef extern from "executor_kinds.h" namespace "cext" nogil:
    void stage_set_kind(Stage& stage, int kind)

cdef extern from "isa.h" namespace "cext" nogil:
    int isa_in_use()
    int isa_best()
    int isa_force(int isa)
    const char* isa_name(int isa)

cdef extern from "quant_types.h" namespace "cext" nogil:
    cdef struct BlockSize:
        int64_t elements
        int64_t bytes
    BlockSize block_size_of(int32_t type)
