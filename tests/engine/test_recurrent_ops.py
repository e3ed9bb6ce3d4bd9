"""Recurrences against their definitions in float64: from zeros, from a state, and in a state's own place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from cext.executor import STATUS_OK, Binding, work_bytes
from cext.threadpool import ThreadPool
from cext.weights import LargeBuffer
from engine.backend.cpu.lower import Lowering
from engine.backend.cpu.stages import CacheLayout
from engine.graph import ops, recurrent
from engine.graph.result import GraphResult
from engine.graph.tensor import Op, Symbol, Tensor
from engine.types import F32Array, QuantType

F64 = npt.NDArray[np.float64]
SEGMENTS = ((0, 7), (7, 1), (8, 12))  # first token, tokens
N_TOKENS = 20
R_OFF, S_OFF, SLOT_VALUES = 64, 4096, 2048
Weights = dict[str, F32Array]
Step = Callable[[F64, F64], F64]
"""(a token's inputs, the state, changed in place) -> the token's output."""


def run(node: Tensor, x: F32Array, weights: Weights, slots: list[F32Array | None], n_threads: int) -> F32Array:
    """The node's rows for input rows x; slots[i] is segment i's state: None begins, the last one is used in its place."""

    def no_cache(cache: int, il: int) -> CacheLayout:
        raise AssertionError("no attention here")

    result = GraphResult(None, node)
    program = Lowering(result, lambda name: weights[name], no_cache, 32, 64, lambda il: (R_OFF, S_OFF)).lower()
    out: F32Array = np.zeros((N_TOKENS, node.n_row), np.float32)
    pos = np.arange(N_TOKENS, dtype=np.int32)
    targets = [np.full(SLOT_VALUES, np.nan, np.float32) for _ in SEGMENTS]
    rows = np.zeros((len(SEGMENTS), 4), np.uint64)
    for i, (t0, n) in enumerate(SEGMENTS):
        slot = slots[i]
        if i == len(SEGMENTS) - 1 and slot is not None:
            targets[i] = slot
        rows[i] = (t0, n, 0 if slot is None else slot.ctypes.data, targets[i].ctypes.data)
    binding, pool = Binding(), ThreadPool(n_threads)
    binding.bind(N_TOKENS, N_TOKENS, None, x, x.shape[1], pos, pos, pos, None, 0, 0, out, node.n_row)
    binding.bind_states(rows)
    arena, work = LargeBuffer(program.arena_bytes), LargeBuffer(work_bytes(program, n_threads))
    flag = np.zeros(1, np.int32)
    assert binding.run(program, pool, n_threads, arena, work, flag) == STATUS_OK
    slots[:] = targets
    return out


def inputs(*widths: int) -> list[Tensor]:
    """Columns of one input, one tensor a width."""
    whole = Tensor(Op.INPUT, (Symbol.N_TOKENS, sum(widths)), name="embd")
    firsts = np.cumsum([0, *widths[:-1]])
    return [ops.columns(whole, int(first), n) for first, n in zip(firsts, widths, strict=True)]


def weight(weights: Weights, name: str, values: npt.NDArray[np.float64]) -> Tensor:
    """A weight of the graph and its values."""
    weights[name] = np.ascontiguousarray(values.reshape(-1), np.float32)
    return Tensor(Op.WEIGHT, weights[name].shape, name=name, quant=QuantType.F32)


Case = tuple[Tensor, Weights, int, tuple[int, ...], int, Step]
"""Node, weights, width of the input, shape of the state, its offset in bytes, and the definition."""


def conv_case(rng: np.random.Generator) -> Case:
    n, taps, weights = 70, 4, Weights()
    w, b = rng.normal(size=(n, taps)), rng.normal(size=n)
    (x,) = inputs(n)
    node = recurrent.conv(x, weight(weights, "w", w), weight(weights, "b", b), 0, "silu", first=3)

    def step(row: F64, state: F64) -> F64:
        window = np.vstack([state, row])
        state[:] = window[1:]
        y = (window * w.T).sum(0) + b
        y = y / (1 + np.exp(-y))
        return np.asarray(y, np.float64)

    return node, weights, n, (taps - 1, n), R_OFF + 12, step


def shift_case(rng: np.random.Generator) -> Case:
    n = 70
    (x,) = inputs(n)

    def step(row: F64, state: F64) -> F64:
        change: F64 = state[0] - row
        state[0] = row
        return change

    return recurrent.token_shift(x, 0, first=5), {}, n, (1, n), R_OFF + 20, step


def ssm_case(rng: np.random.Generator, *, per_state: bool) -> Case:
    n_head, d, n_group, n_state, weights = 6, 5, 2, 9, Weights()
    a = -np.exp(rng.normal(size=(n_head, n_state if per_state else 1)))
    skip = rng.normal(size=n_head)
    x, dt, b, c = inputs(n_head * d, n_head, n_group * n_state, n_group * n_state)
    b, c = (ops.reshape(t, n_group, n_state) for t in (b, c))
    wa, wd = weight(weights, "a", a), weight(weights, "d", skip)
    node = recurrent.ssm_scan(ops.reshape(x, n_head, d), dt, b, c, wa, wd, 0)

    def step(row: F64, state: F64) -> F64:
        x_, dt_, b_, c_ = np.split(row, np.cumsum([n_head * d, n_head, n_group * n_state]))
        x_, dt_ = x_.reshape(n_head, d), np.log1p(np.exp(dt_))
        b_, c_ = (np.repeat(t.reshape(n_group, n_state), n_head // n_group, 0) for t in (b_, c_))
        state *= np.exp(dt_[:, None] * a)[:, None, :]
        state += (x_ * dt_[:, None])[:, :, None] * b_[:, None, :]
        y: F64 = (state * c_[:, None, :]).sum(2) + skip[:, None] * x_
        return y.reshape(-1)

    return node, weights, row_width(node), (n_head, d, n_state), S_OFF, step


def delta_case(rng: np.random.Generator, *, tiled: bool) -> Case:
    n_k, n_v, d_k, d_v = 2, 6, 8, 5
    q, k, v, gate, beta = inputs(n_k * d_k, n_k * d_k, n_v * d_v, n_v, n_v)
    q, k = (ops.reshape(t, n_k, d_k) for t in (q, k))
    node = recurrent.delta_net(q, k, ops.reshape(v, n_v, d_v), gate, beta, 0, tiled=tiled)
    key_of = np.arange(n_v) % n_k if tiled else np.arange(n_v) // (n_v // n_k)

    def step(row: F64, state: F64) -> F64:
        q_, k_, v_, g_, b_ = np.split(row, np.cumsum([n_k * d_k, n_k * d_k, n_v * d_v, n_v]))
        q_, k_ = (t.reshape(n_k, d_k)[key_of] for t in (q_, k_))
        state *= np.exp(g_)[:, None, None]
        change = (v_.reshape(n_v, d_v) - np.einsum("hk,hkv->hv", k_, state)) * b_[:, None]
        state += k_[:, :, None] * change[:, None, :]
        y: F64 = np.einsum("hk,hkv->hv", q_, state)
        return y.reshape(-1)

    return node, {}, row_width(node), (n_v, d_k, d_v), S_OFF, step


def wkv6_case(rng: np.random.Generator) -> Case:
    n_head, d, weights = 3, 8, Weights()
    bonus = rng.normal(size=(n_head, d))
    r, k, v, w = (ops.reshape(t, n_head, d) for t in inputs(*[n_head * d] * 4))
    node = recurrent.wkv6(r, k, v, w, weight(weights, "u", bonus), 0)

    def step(row: F64, state: F64) -> F64:
        r_, k_, v_, w_ = row.reshape(4, n_head, d)
        kv = k_[:, :, None] * v_[:, None, :]
        y: F64 = np.einsum("hk,hkv->hv", r_, state + bonus[:, :, None] * kv)
        state *= w_[:, :, None]
        state += kv
        return y.reshape(-1)

    return node, weights, row_width(node), (n_head, d, d), S_OFF, step


def wkv7_case(rng: np.random.Generator) -> Case:
    n_head, d = 3, 11
    r, w, k, v, a, b = (ops.reshape(t, n_head, d) for t in inputs(*[n_head * d] * 6))
    node = recurrent.wkv7(r, w, k, v, a, b, 0)

    def step(row: F64, state: F64) -> F64:
        r_, w_, k_, v_, a_, b_ = row.reshape(6, n_head, d)
        removed = np.einsum("hvk,hk->hv", state, a_)
        state *= w_[:, None, :]
        state += v_[:, :, None] * k_[:, None, :] + removed[:, :, None] * b_[:, None, :]
        y: F64 = np.einsum("hvk,hk->hv", state, r_)
        return y.reshape(-1)

    return node, {}, row_width(node), (n_head, d, d), S_OFF, step


def row_width(node: Tensor) -> int:
    """Width of the one input that the node's sources are columns of."""
    source = node.src[0]
    while source.op is not Op.INPUT:
        source = source.src[0]
    return source.n_row


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "conv": conv_case,
    "shift": shift_case,
    "ssm": lambda rng: ssm_case(rng, per_state=False),
    "ssm per state": lambda rng: ssm_case(rng, per_state=True),
    "delta": lambda rng: delta_case(rng, tiled=False),
    "delta tiled": lambda rng: delta_case(rng, tiled=True),
    "wkv6": wkv6_case,
    "wkv7": wkv7_case,
}


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_a_recurrence_is_what_its_definition_says(name: str, n_threads: int) -> None:
    rng = np.random.default_rng(7)
    node, weights, width, shape, offset, step = CASES[name](rng)
    x = rng.uniform(-1, 1, (N_TOKENS, width)).astype(np.float32) * 0.5
    first, size = offset // 4, int(np.prod(shape))
    slots: list[F32Array | None] = [None, *(rng.normal(size=SLOT_VALUES).astype(np.float32) for _ in range(2))]
    want_states = [np.zeros(shape) if s is None else s[first : first + size].astype(np.float64) for s in slots]
    want = np.empty((N_TOKENS, node.n_row))
    for (t0, n), state in zip(SEGMENTS, want_states, strict=True):
        held = state.reshape(shape).copy()
        for t in range(t0, t0 + n):
            want[t] = step(x[t].astype(np.float64), held)
        state.reshape(-1)[:] = held.reshape(-1)
    got = run(node, x, weights, slots, n_threads)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    for slot, state in zip(slots, want_states, strict=True):
        assert slot is not None
        np.testing.assert_allclose(slot[first : first + size], state.reshape(-1), rtol=2e-5, atol=2e-5)


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, dt = inputs(8, 3)
    with pytest.raises(ValueError, match="no heads"):
        recurrent.wkv7(x, x, x, x, x, x, 0)
    with pytest.raises(ValueError, match="conv"):
        recurrent.conv(x, Tensor(Op.WEIGHT, (12,), name="w"), None, 0)
    heads = ops.reshape(x, 2, 4)
    with pytest.raises(ValueError, match="delta_net"):
        recurrent.delta_net(heads, heads, heads, dt, dt, 0)
