"""The row kernels one by one, for tests and benchmarks: each call names the instruction set it wants.

The executor calls the same C functions; nothing in the engine passes through here.
"""

import numpy as np

from libc.stdint cimport int32_t, int64_t, uint8_t

from cext.rope cimport RopeParams, rope_delta_table_c, rope_tables_c


cdef extern from "isa.h" namespace "cext" nogil:
    int isa_best_c "cext::isa_best"()


cdef extern from "rows.h" namespace "cext" nogil:
    cdef struct RowKernels:
        void (*rms_norm)(const float*, int64_t, const float*, float, int64_t, int64_t, float*, int64_t) noexcept nogil
        void (*layer_norm)(const float*, int64_t, const float*, const float*, float, int64_t, int64_t,
                        float*, int64_t) noexcept nogil
        void (*l2_norm)(const float*, int64_t, float, int64_t, int64_t, float*, int64_t) noexcept nogil
        void (*rope)(float*, int64_t, int64_t, int64_t, int64_t, int32_t, int64_t, const float*) noexcept nogil
        void (*add)(const float*, const float*, int64_t, float*) noexcept nogil
        void (*mul)(const float*, const float*, int64_t, float*) noexcept nogil
        void (*scale)(const float*, float, int64_t, float*) noexcept nogil
        void (*add_row)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t) noexcept nogil
        void (*unary)(int32_t, const float*, int64_t, float*) noexcept nogil
        void (*glu)(int32_t, const float*, const float*, int64_t, float*) noexcept nogil
        void (*softcap)(const float*, float, int64_t, float*) noexcept nogil
        void (*softmax)(const float*, int64_t, const float*, int64_t, float, int64_t, int64_t,
                        float*, int64_t) noexcept nogil
        int64_t (*argmax)(const float*, int64_t) noexcept nogil
        int (*all_finite)(const float*, int64_t) noexcept nogil

    const RowKernels& row_kernels_for(int isa)


cdef extern from "kv_types.h" namespace "cext" nogil:
    int64_t kv_row_bytes_c "cext::kv_row_bytes"(int32_t type, int64_t d)
    int kv_encode_row(int32_t type, const float* x, int64_t d, uint8_t* row)
    int kv_decode_row(int32_t type, const uint8_t* row, int64_t d, float* x)
    int kv_rotate_row_c "cext::kv_rotate_row"(
        int32_t type, uint8_t* row, int64_t d, int32_t kind, int64_t n_rot, const float* table)


cdef const float* _optional(const float[::1] w, Py_ssize_t n, str name) except? NULL:
    if w is None:
        return NULL
    if w.shape[0] != n or n == 0:
        raise ValueError(f"{name} has {w.shape[0]} values, expected {n}")
    return &w[0]


cdef RopeParams _rope_params(dict params, const float[::1] freq_factors) except *:
    cdef RopeParams p
    p.kind = params["kind"]
    p.n_rot = params["n_rot"]
    if p.n_rot < 2 or p.n_rot % 2 or p.n_rot > 1024:
        raise ValueError(f"n_rot {p.n_rot} is not an even number in [2, 1024]")
    p.freq_base = params.get("freq_base", 10000.0)
    p.freq_scale = params.get("freq_scale", 1.0)
    p.ext_factor = params.get("ext_factor", 0.0)
    p.attn_factor = params.get("attn_factor", 1.0)
    p.beta_fast = params.get("beta_fast", 32.0)
    p.beta_slow = params.get("beta_slow", 1.0)
    p.n_ctx_orig = params.get("n_ctx_orig", 4096)
    sections = params.get("sections", (0, 0, 0, 0))
    if len(sections) != 4 or min(sections) < 0 or 2 * sum(sections) not in (0, p.n_rot):
        raise ValueError(f"sections {sections} of {p.n_rot} dimensions")
    p.sections = sections
    p.freq_factors = _optional(freq_factors, p.n_rot // 2, "freq_factors")
    return p


def isa_best():
    """The best instruction set of this CPU: 0 scalar, 1 AVX2, 2 AVX-512."""
    return isa_best_c()


def rms_norm(int isa, const float[:, ::1] x not None, const float[::1] w, float eps):
    """f32[n_rows, n]: each row of x divided by its root mean square, times w[n] or 1."""
    out = np.empty_like(np.asarray(x))
    cdef float[:, ::1] y = out
    cdef const float* weights = _optional(w, x.shape[1], "w")
    if x.size:
        row_kernels_for(isa).rms_norm(&x[0, 0], x.shape[1], weights, eps, x.shape[0], x.shape[1], &y[0, 0], y.shape[1])
    return out


def layer_norm(int isa, const float[:, ::1] x not None, const float[::1] w, const float[::1] b, float eps):
    """f32[n_rows, n]: rows of mean 0 and variance 1, times w[n] or 1, plus b[n] or 0."""
    out = np.empty_like(np.asarray(x))
    cdef float[:, ::1] y = out
    cdef const float* ws = _optional(w, x.shape[1], "w")
    cdef const float* bs = _optional(b, x.shape[1], "b")
    if x.size:
        row_kernels_for(isa).layer_norm(
            &x[0, 0], x.shape[1], ws, bs, eps, x.shape[0], x.shape[1], &y[0, 0], y.shape[1])
    return out


def l2_norm(int isa, const float[:, ::1] x not None, float eps):
    """f32[n_rows, n]: rows of length 1."""
    out = np.empty_like(np.asarray(x))
    cdef float[:, ::1] y = out
    if x.size:
        row_kernels_for(isa).l2_norm(&x[0, 0], x.shape[1], eps, x.shape[0], x.shape[1], &y[0, 0], y.shape[1])
    return out


def rope_tables(dict params, const int32_t[::1] pos not None, const float[::1] freq_factors=None):
    """f32[n, n_rot]: cosines and sines of each position; `params` holds RopeParams' fields by name.

    pos: i32[n], or i32[4 * n] with sections.
    """
    cdef RopeParams p = _rope_params(params, freq_factors)
    cdef int64_t n = pos.shape[0] // (4 if any(params.get("sections", ())) else 1)
    out = np.zeros((n, p.n_rot), np.float32)
    cdef float[:, ::1] y = out
    if n:
        rope_tables_c(&p, &pos[0], n, &y[0, 0])
    return out


def rope_delta_table(dict params, int delta, const float[::1] freq_factors=None):
    """f32[n_rot]: the pure rotation by `delta` positions."""
    cdef RopeParams p = _rope_params(params, freq_factors)
    out = np.zeros(p.n_rot, np.float32)
    cdef float[::1] y = out
    rope_delta_table_c(&p, delta, &y[0])
    return out


def rope(int isa, float[:, :, ::1] x not None, int kind, const float[:, ::1] tables not None):
    """Rotate x, f32[n_tokens, n_head, d], in place by tables, f32[n_tokens, n_rot]."""
    cdef Py_ssize_t n_rot = tables.shape[1]
    if tables.shape[0] != x.shape[0] or n_rot > x.shape[2] or n_rot % 2:
        raise ValueError(f"tables of shape {(tables.shape[0], n_rot)} do not fit x")
    if x.size and n_rot:
        row_kernels_for(isa).rope(
            &x[0, 0, 0], x.shape[1] * x.shape[2], x.shape[0], x.shape[1], x.shape[2], kind, n_rot, &tables[0, 0])


def binary(int isa, str op, const float[::1] a not None, const float[::1] b not None):
    """f32[n]: a + b or a * b, op "add" or "mul"."""
    if a.shape[0] != b.shape[0]:
        raise ValueError(f"a has {a.shape[0]} values, b {b.shape[0]}")
    out = np.empty_like(np.asarray(a))
    cdef float[::1] y = out
    if a.shape[0] == 0:
        return out
    if op == "add":
        row_kernels_for(isa).add(&a[0], &b[0], a.shape[0], &y[0])
    elif op == "mul":
        row_kernels_for(isa).mul(&a[0], &b[0], a.shape[0], &y[0])
    else:
        raise ValueError(f"op {op!r} is neither add nor mul")
    return out


def scale(int isa, const float[::1] x not None, float s):
    """f32[n]: x * s."""
    out = np.empty_like(np.asarray(x))
    cdef float[::1] y = out
    if x.shape[0]:
        row_kernels_for(isa).scale(&x[0], s, x.shape[0], &y[0])
    return out


def add_row(int isa, const float[:, ::1] x not None, const float[::1] b not None):
    """f32[n_rows, n]: b[n] added to each row."""
    out = np.empty_like(np.asarray(x))
    cdef float[:, ::1] y = out
    cdef const float* bs = _optional(b, x.shape[1], "b")
    if x.size:
        row_kernels_for(isa).add_row(&x[0, 0], x.shape[1], bs, x.shape[0], x.shape[1], &y[0, 0], y.shape[1])
    return out


def unary(int isa, int op, const float[::1] x not None):
    """f32[n]: the function UnaryOp `op` of each value."""
    out = np.empty_like(np.asarray(x))
    cdef float[::1] y = out
    if x.shape[0]:
        with nogil:
            row_kernels_for(isa).unary(op, &x[0], x.shape[0], &y[0])
    return out


def glu(int isa, int op, const float[::1] gate not None, const float[::1] up not None):
    """f32[n]: op(gate) * up."""
    if gate.shape[0] != up.shape[0]:
        raise ValueError(f"gate has {gate.shape[0]} values, up {up.shape[0]}")
    out = np.empty_like(np.asarray(gate))
    cdef float[::1] y = out
    if gate.shape[0]:
        row_kernels_for(isa).glu(op, &gate[0], &up[0], gate.shape[0], &y[0])
    return out


def softcap(int isa, const float[::1] x not None, float cap):
    """f32[n]: cap * tanh(x / cap)."""
    out = np.empty_like(np.asarray(x))
    cdef float[::1] y = out
    if x.shape[0]:
        row_kernels_for(isa).softcap(&x[0], cap, x.shape[0], &y[0])
    return out


def softmax(int isa, const float[:, ::1] x not None, const float[:, ::1] mask, float s):
    """f32[n_rows, n]: softmax of each row of x * s + mask; mask may be None."""
    out = np.empty_like(np.asarray(x))
    cdef float[:, ::1] y = out
    cdef const float* masks = NULL
    if x.size == 0:
        return out
    if mask is not None:
        if mask.shape[0] != x.shape[0] or mask.shape[1] != x.shape[1]:
            raise ValueError("mask has another shape than x")
        masks = &mask[0, 0]
    row_kernels_for(isa).softmax(
        &x[0, 0], x.shape[1], masks, x.shape[1], s, x.shape[0], x.shape[1], &y[0, 0], y.shape[1])
    return out


def argmax(int isa, const float[::1] x not None):
    """Index of the first largest value, or -1."""
    return row_kernels_for(isa).argmax(&x[0], x.shape[0]) if x.shape[0] else -1


def all_finite(int isa, const float[::1] x not None):
    """True where no value is infinite or NaN."""
    return bool(row_kernels_for(isa).all_finite(&x[0], x.shape[0])) if x.shape[0] else True


def kv_row_bytes(int type, Py_ssize_t d):
    """Bytes of d values in a cache type; 0 where the type or d does not fit."""
    return kv_row_bytes_c(type, d)


def kv_encode(int type, const float[::1] x not None):
    """u8[kv_row_bytes]: x in a cache type."""
    cdef int64_t n_bytes = kv_row_bytes_c(type, x.shape[0])
    if n_bytes == 0:
        raise ValueError(f"{x.shape[0]} values do not make a row of type {type}")
    out = np.zeros(n_bytes, np.uint8)
    cdef uint8_t[::1] row = out
    kv_encode_row(type, &x[0], x.shape[0], &row[0])
    return out


def kv_decode(int type, const uint8_t[::1] row not None, Py_ssize_t d):
    """f32[d]: the values of a cache row."""
    if kv_row_bytes_c(type, d) != row.shape[0] or d <= 0:
        raise ValueError(f"{row.shape[0]} bytes are not {d} values of type {type}")
    out = np.zeros(d, np.float32)
    cdef float[::1] x = out
    kv_decode_row(type, &row[0], d, &x[0])
    return out


def kv_rotate_row(int type, uint8_t[::1] row not None, Py_ssize_t d, int kind, const float[::1] table not None):
    """Rotate a cache row in place by a table of rope_delta_table."""
    if kv_row_bytes_c(type, d) != row.shape[0] or table.shape[0] > d or table.shape[0] < 2 or table.shape[0] % 2:
        raise ValueError("row, d and table do not fit")
    return kv_rotate_row_c(type, &row[0], d, kind, table.shape[0], &table[0])
