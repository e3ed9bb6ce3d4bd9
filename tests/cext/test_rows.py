"""Row kernels of every instruction set against numpy in float64, rotation against its definition, cache rows against gguf."""

from __future__ import annotations

import math
from collections.abc import Callable

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from cext import kernel_rows as k
from tests.cext.kernel_support import ISAS, nmse

F64Array = npt.NDArray[np.float64]
SIZES = (1, 3, 8, 15, 16, 17, 63, 64, 65, 257, 576, 640, 896)
SILU, GELU, GELU_ERF, GELU_QUICK, RELU, RELU_SQR, SIGMOID, TANH, SOFTPLUS, EXP, NEG = range(11)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def gelu_erf(x: F64Array) -> F64Array:
    return np.asarray(0.5 * x * np.array([math.erfc(-v / math.sqrt(2)) for v in x]))


UNARY: dict[int, Callable[[F64Array], F64Array]] = {
    SILU: lambda x: x / (1 + np.exp(-x)),
    GELU: lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    GELU_ERF: gelu_erf,
    GELU_QUICK: lambda x: x / (1 + np.exp(-1.702 * x)),
    RELU: lambda x: np.maximum(x, 0),
    RELU_SQR: lambda x: np.maximum(x, 0) ** 2,
    SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
    TANH: np.tanh,
    SOFTPLUS: lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    EXP: np.exp,
    NEG: np.negative,
}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.mark.parametrize("n", SIZES)
def test_norms(isa: int, n: int) -> None:
    x, w, b = normal(5, n), normal(n, seed=1), normal(n, seed=2)
    x64 = x.astype(np.float64)
    rms = x64 / np.sqrt((x64**2).mean(1, keepdims=True) + 1e-5)
    assert nmse(k.rms_norm(isa, x, w, 1e-5), rms * w) < 1e-12
    assert nmse(k.rms_norm(isa, x, None, 1e-5), rms) < 1e-12
    centred = x64 - x64.mean(1, keepdims=True)
    layer = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    assert nmse(k.layer_norm(isa, x, w, b, 1e-5), layer * w + b) < 1e-11
    if n > 1:
        assert nmse(k.layer_norm(isa, x, None, None, 1e-5), layer) < 1e-11
    assert nmse(k.l2_norm(isa, x, 1e-12), x64 / np.linalg.norm(x64, axis=1, keepdims=True)) < 1e-12


@pytest.mark.parametrize("n", SIZES)
def test_elementwise(isa: int, n: int) -> None:
    a, b = normal(n), normal(n, seed=1)
    np.testing.assert_array_equal(k.binary(isa, "add", a, b), a + b)
    np.testing.assert_array_equal(k.binary(isa, "mul", a, b), a * b)
    np.testing.assert_array_equal(k.scale(isa, a, 0.37), a * np.float32(0.37))
    x = normal(3, n)
    np.testing.assert_array_equal(k.add_row(isa, x, b), x + b)
    assert nmse(k.softcap(isa, a * 40, 30.0), 30 * np.tanh(a.astype(np.float64) * 40 / 30)) < 1e-12


@pytest.mark.parametrize("op", UNARY)
def test_unary_and_glu(isa: int, op: int) -> None:
    x = np.concatenate([np.linspace(-12, 12, 4801), np.logspace(-6, 1, 100), [0.0, -0.0]]).astype(np.float32)
    want = UNARY[op](x.astype(np.float64))
    got = k.unary(isa, op, x)
    assert np.abs(got - want).max() <= 4e-7 * max(1.0, np.abs(want).max())
    big = np.abs(want) > 1e-10
    tolerance = 1e-5 if op in (GELU_ERF, GELU, GELU_QUICK) else 1e-6
    assert (np.abs(got - want)[big] / np.abs(want)[big]).max() < tolerance
    up = normal(len(x))
    np.testing.assert_array_equal(k.glu(isa, op, x, up), k.unary(isa, op, x) * up)


def test_exp_ulp_and_limits(isa: int) -> None:
    x = np.linspace(-87.3, 88.7, 400_001).astype(np.float32)
    want = np.exp(x.astype(np.float64))
    ulp = np.spacing(want.astype(np.float32)).astype(np.float64)
    assert (np.abs(k.unary(isa, EXP, x) - want) / ulp).max() <= 2.0
    ends = np.array([-1000, -np.inf, 1000, np.inf, np.nan, 0], np.float32)
    np.testing.assert_array_equal(k.unary(isa, EXP, ends), np.array([0, 0, np.inf, np.inf, np.nan, 1], np.float32))
    ends = np.array([-1e30, -np.inf, 1e30, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(k.unary(isa, TANH, ends), np.array([-1, -1, 1, 1, np.nan], np.float32))


def test_split_gives_same_bits(isa: int) -> None:
    x = normal(1000, scale=3.0)
    for op in UNARY:
        whole = k.unary(isa, op, x)
        parts = [k.unary(isa, op, x[a:b].copy()) for a, b in ((0, 7), (7, 16), (16, 333), (333, 1000))]
        np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_softmax(isa: int) -> None:
    x, mask = normal(6, 77, scale=5.0), normal(6, 77, seed=1)
    mask[:, 50:] = -np.inf
    mask[3] = -np.inf
    for m in (None, mask):
        s = x.astype(np.float64) * 0.5 + (0 if m is None else m)
        with np.errstate(invalid="ignore"):
            e = np.exp(s - s.max(1, keepdims=True))
            want = np.nan_to_num(e / e.sum(1, keepdims=True))
        assert nmse(k.softmax(isa, x, m, 0.5), want) < 1e-12


def test_argmax_and_finite(isa: int) -> None:
    for n in SIZES:
        x = normal(n, seed=n)
        assert k.argmax(isa, x) == x.argmax()
        assert k.all_finite(isa, x)
        for bad in (np.nan, np.inf, -np.inf):
            y = x.copy()
            y[n // 2] = bad
            assert not k.all_finite(isa, y)
        y = x.copy()
        y[n // 2] = np.nan
        assert k.argmax(isa, y) == (np.nanargmax(y) if n > 1 else -1)
    assert k.argmax(isa, np.array([1, 3, 3, 2], np.float32)) == 1


def yarn_freqs(p: dict[str, float], factors: npt.NDArray[np.float32] | None) -> tuple[F64Array, float]:
    """Angle per position and magnitude, by the definition of ggml_rope_ext."""
    n, base = int(p["n_rot"]), p.get("freq_base", 10000.0)
    i = np.arange(n // 2)
    extrapolated = base ** (-2.0 * i / n) / (1.0 if factors is None else factors)
    interpolated = extrapolated * p.get("freq_scale", 1.0)
    ext, magnitude = p.get("ext_factor", 0.0), p.get("attn_factor", 1.0)
    if ext == 0:
        return interpolated, magnitude
    dims = [n * np.log(p["n_ctx_orig"] / (b * 2 * np.pi)) / (2 * np.log(base)) for b in (32.0, 1.0)]
    low, high = max(0.0, np.floor(dims[0])), min(n - 1.0, np.ceil(dims[1]))
    mix = (1 - np.clip((i - low) / max(0.001, high - low), 0, 1)) * ext
    return interpolated * (1 - mix) + extrapolated * mix, magnitude * (1 + 0.1 * np.log(1 / p["freq_scale"]))


ROPES: tuple[dict[str, float], ...] = (
    {"n_rot": 64},
    {"n_rot": 64, "freq_base": 1e6, "freq_scale": 0.25, "attn_factor": 1.2},
    {"n_rot": 32, "freq_base": 1e4, "freq_scale": 0.25, "ext_factor": 1.0, "n_ctx_orig": 4096},
    {"n_rot": 96, "freq_base": 5e5, "freq_scale": 0.125, "ext_factor": 0.7, "n_ctx_orig": 8192, "attn_factor": 0.9},
    {"n_rot": 6},
)


@pytest.mark.parametrize("kind", (1, 2))
@pytest.mark.parametrize("params", ROPES)
@pytest.mark.parametrize("has_factors", (False, True))
def test_rope(isa: int, kind: int, params: dict[str, float], has_factors: bool) -> None:
    n_rot = int(params["n_rot"])
    p = {**params, "kind": kind}
    factors = np.linspace(1, 8, n_rot // 2).astype(np.float32) if has_factors else None
    pos = np.array([0, 1, 17, 4095, 131071, 999_983, -5, -99_991], np.int32)
    freq, magnitude = yarn_freqs({name: float(np.float32(value)) for name, value in params.items()}, factors)
    theta = pos[:, None] * freq
    want = np.concatenate([np.cos(theta), np.sin(theta)], 1) * magnitude
    tables = k.rope_tables(p, pos, factors)
    assert np.abs(tables - want).max() < 3e-7
    x = normal(len(pos), 3, n_rot + 10)
    pairs = np.arange(n_rot).reshape(2, -1).T if kind == 2 else np.arange(n_rot).reshape(-1, 2)
    turned = x.astype(np.float64).copy()
    a, b = x[..., pairs[:, 0]].astype(np.float64), x[..., pairs[:, 1]].astype(np.float64)
    c, s = (tables[:, None, : n_rot // 2].astype(np.float64), tables[:, None, n_rot // 2 :].astype(np.float64))
    turned[..., pairs[:, 0]], turned[..., pairs[:, 1]] = a * c - b * s, a * s + b * c
    got = x.copy()
    k.rope(isa, got, kind, tables)
    assert nmse(got, turned) < 1e-13
    np.testing.assert_array_equal(got[..., n_rot:], x[..., n_rot:])


def test_rope_at_any_position() -> None:
    pos = np.random.default_rng(3).integers(-(2**31), 2**31, 2000).astype(np.int32)
    tables = k.rope_tables({"kind": 2, "n_rot": 64}, pos)
    theta = pos[:, None] * 10000.0 ** (-2.0 * np.arange(32) / 64)
    assert np.abs(tables - np.concatenate([np.cos(theta), np.sin(theta)], 1)).max() < 3e-6


@pytest.mark.parametrize("kind", (2, 3))
@pytest.mark.parametrize("sections", ((3, 5, 8, 0), (8, 8, 0, 0), (0, 4, 4, 8)))
def test_rope_by_several_axes(kind: int, sections: tuple[int, ...]) -> None:
    n_pairs = sum(sections)
    pos = np.random.default_rng(6).integers(0, 100_000, (9, 4)).astype(np.int32)
    axis = np.repeat(np.arange(4), sections)
    if kind == 2:
        freq = 10000.0 ** (-2.0 * np.arange(n_pairs) / (2 * n_pairs))
    else:
        freq = np.concatenate([10000.0 ** (-np.arange(n) / n) for n in sections if n])
    theta = pos[:, axis] * freq
    got = k.rope_tables({"kind": kind, "n_rot": 2 * n_pairs, "sections": sections}, pos.reshape(-1))
    assert np.abs(got - np.concatenate([np.cos(theta), np.sin(theta)], 1)).max() < 3e-7
    x = normal(9, 2, 2 * n_pairs)
    turned = x.copy()
    k.rope(0, turned, kind, got)
    as_neox = x.copy()
    k.rope(0, as_neox, 2, got)
    np.testing.assert_array_equal(turned, as_neox)


def test_equal_axes_are_one_position_and_a_shift_moves_them_all() -> None:
    p: dict[str, float | tuple[int, ...]] = {"kind": 2, "n_rot": 16, "sections": (2, 3, 3, 0)}
    pos = np.array([0, 7, 4000], np.int32)
    plain = k.rope_tables({"kind": 2, "n_rot": 16}, pos)
    np.testing.assert_array_equal(k.rope_tables(p, np.repeat(pos, 4)), plain)
    at = np.array([[5, 9, 2, 0]], np.int32)
    x, moved = normal(1, 1, 16), np.empty((1, 1, 16), np.float32)
    moved[:] = x
    k.rope(0, x, 2, k.rope_tables(p, (at + 300).reshape(-1)))
    k.rope(0, moved, 2, k.rope_tables(p, at.reshape(-1)))
    k.rope(0, moved, 2, k.rope_delta_table(p, 300)[None])
    assert nmse(moved, x) < 1e-12


def test_sections_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="sections"):
        k.rope_tables({"kind": 2, "n_rot": 16, "sections": (2, 3, 2, 0)}, np.zeros(4, np.int32))


@pytest.mark.parametrize("params", ROPES)
def test_shift_back_is_identity(params: dict[str, float]) -> None:
    p = {**params, "kind": 2}
    n_rot = int(params["n_rot"])
    x = normal(1, 1, n_rot)
    shifted = x.copy()
    for delta in (777, -777):
        k.rope(0, shifted, 2, k.rope_delta_table(p, delta)[None])
    assert nmse(shifted, x) < 1e-12
    at, moved = x.copy(), x.copy()
    k.rope(0, at, 2, k.rope_tables(p, np.array([1000], np.int32)))
    k.rope(0, moved, 2, k.rope_tables(p, np.array([223], np.int32)))
    k.rope(0, moved, 2, k.rope_delta_table(p, 777)[None])
    assert nmse(moved, at) < 1e-12


Q = gguf.GGMLQuantizationType
CACHE_TYPES = (Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.IQ4_NL)


@pytest.mark.parametrize("kind", CACHE_TYPES)
def test_cache_rows(kind: gguf.GGMLQuantizationType) -> None:
    x = normal(128, seed=int(kind))
    x[64:96] = 0
    row = k.kv_encode(int(kind), x)
    if kind == Q.F32:
        np.testing.assert_array_equal(row.view(np.float32), x)
    elif kind == Q.F16:
        np.testing.assert_array_equal(row.view(np.float16), x.astype(np.float16))
    elif kind != Q.IQ4_NL:
        np.testing.assert_array_equal(row, gguf.quants.quantize(x, kind).view(np.uint8))
    back = k.kv_decode(int(kind), row, 128)
    if kind not in (Q.F32, Q.F16):
        np.testing.assert_array_equal(back, gguf.quants.dequantize(row, kind))
    bound = {Q.F32: 0.0, Q.F16: 1e-6, Q.BF16: 1e-5, Q.Q8_0: 1e-4, Q.Q5_0: 2e-3, Q.Q5_1: 2e-3}.get(kind, 1e-2)
    assert nmse(back, x) <= bound


def test_cache_rows_refuse_and_survive_nan() -> None:
    assert k.kv_row_bytes(int(Q.Q8_0), 80) == 0 and k.kv_row_bytes(int(Q.Q4_K), 256) == 0
    assert k.kv_row_bytes(int(Q.F16), 80) == 160
    for kind in CACHE_TYPES:
        k.kv_encode(int(kind), np.full(32, np.nan, np.float32))


@pytest.mark.parametrize("kind", (Q.F32, Q.F16, Q.Q8_0))
def test_rotated_row_is_the_row_of_the_rotated(kind: gguf.GGMLQuantizationType) -> None:
    p = {"kind": 1, "n_rot": 32}
    x = normal(1, 1, 64)
    table = k.rope_delta_table(p, -300)
    row = k.kv_encode(int(kind), x[0, 0])
    k.kv_rotate_row(int(kind), row, 64, 1, table)
    k.rope(0, x, 1, table[None])
    assert nmse(k.kv_decode(int(kind), row, 64), x[0, 0]) < {Q.F32: 1e-13, Q.F16: 1e-6, Q.Q8_0: 3e-4}[kind]
