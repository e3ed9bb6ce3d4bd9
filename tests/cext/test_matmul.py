"""Packed weights: what comes back from a panel, and products of every type, instruction set and shape."""

from __future__ import annotations

import numpy as np
import pytest

from cext.kernel_matmul import PackedWeights, available_isas, packed_bytes, quantize, uses_q8
from cext.quants import block_size, dequantize
from engine.types import F32Array, F64Array, QuantType
from tests.cext.quant_blocks import random_rows

T = QuantType
FLOATS = (T.F32, T.F16, T.BF16)
SMALL_BLOCKS = (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4)
SUPER_BLOCKS = (T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS)
PANELS = (*SMALL_BLOCKS, *SUPER_BLOCKS)
AS_ROWS = (
    T.Q8_K, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S, T.IQ1_S, T.IQ1_M, T.TQ1_0, T.TQ2_0, T.NVFP4, T.Q1_0,
)  # fmt: skip
WEIGHTS = (*FLOATS, *PANELS, *AS_ROWS)
ISAS = available_isas()
N_TOKENS = (1, 2, 3, 7, 8, 9, 33, 130)


def matrix(type: QuantType, n_rows: int, n_cols: int, seed: int = 1) -> tuple[PackedWeights, F32Array]:
    """Return random weights, packed, and as floats f32[n_rows, n_cols]."""
    rows = random_rows(np.random.default_rng([seed, type, n_rows, n_cols]), type, n_rows, n_cols)
    return PackedWeights(type, n_rows, n_cols, rows), dequantize(type, rows).reshape(n_rows, n_cols)


def activations(n_tokens: int, n_cols: int) -> F32Array:
    x = np.random.default_rng(n_tokens).standard_normal((n_tokens, n_cols)).astype(np.float32)
    x[:, : min(8, n_cols)] *= 10  # blocks of very different size
    return x


def quantized(x: F32Array) -> F64Array:
    """Return what activations of 8 bits stand for: the reference of `quantize`."""
    blocks = x.reshape(len(x), -1, 32)
    amax = np.abs(blocks).max(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.where(amax > 0, np.rint(blocks * (np.float32(127) / amax)), 0)
    values: F64Array = q.astype(np.float64) * (amax / np.float32(127))
    return values.reshape(x.shape)


def assert_close(got: F32Array, weights: F32Array, x: F32Array | F64Array, bound: float) -> None:
    """Every output is as near the exact product as `bound` times the product of magnitudes allows."""
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    size = np.abs(x).astype(np.float64) @ np.abs(weights).astype(np.float64).T
    assert np.all(np.abs(got - exact) <= bound * size + 1e-30), np.max(np.abs(got - exact) / (size + 1e-30))


@pytest.mark.parametrize("type", WEIGHTS, ids=lambda t: t.name)
@pytest.mark.parametrize("n_rows", (1, 15, 16, 17, 48))
def test_rows_come_back_exactly(type: QuantType, n_rows: int) -> None:
    n_cols = 2 * max(block_size(type)[0], 32)
    packed, weights = matrix(type, n_rows, n_cols)
    for row in range(n_rows):
        assert packed.row(row).tobytes() == weights[row].tobytes()
    with pytest.raises(IndexError):
        packed.row(n_rows)


@pytest.mark.parametrize("isa", ISAS)
def test_quantized_activations_are_the_same_everywhere(isa: str) -> None:
    x = activations(9, 352)
    x[3, 32:64] = 0
    x[4, 64:96] = 1e-36
    q, d, s, s16 = quantize(x, isa)
    assert np.abs(q.astype(int)).max() == 127
    expected = quantized(np.where(np.abs(x) < 1e-30, np.float32(0), x))
    np.testing.assert_allclose(
        (q.reshape(9, 11, 32) * d[:, :, None].astype(np.float64)).reshape(9, 352), expected, rtol=1e-7
    )
    sums = q.reshape(9, 11, 2, 16).sum(axis=3, dtype=np.float32)
    np.testing.assert_array_equal(s, d * sums.sum(axis=2))
    np.testing.assert_array_equal(s16, d[:, :, None] * sums)
    for got, scalar in zip((q, d, s, s16), quantize(x, "scalar"), strict=True):
        np.testing.assert_array_equal(got, scalar)


@pytest.mark.parametrize("isa", ISAS)
def test_a_second_term_holds_what_the_first_left(isa: str) -> None:
    x = activations(5, 352)
    two = quantize(x, isa, n_terms=2)
    for both, first, scalar in zip(two, quantize(x, isa), quantize(x, "scalar", n_terms=2), strict=True):
        np.testing.assert_array_equal(np.asarray(both)[::2], first)
        np.testing.assert_array_equal(both, scalar)
    q, d, _, _ = two
    held = (q.reshape(5, 2, 11, 32) * d.reshape(5, 2, 11, 1).astype(np.float64)).sum(axis=1).reshape(5, 352)
    assert np.abs(held - x).max() < np.abs(x).max() / (127 * 250)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bad", (np.nan, np.inf, -np.inf))
def test_a_value_that_is_not_finite_shows_in_the_product(isa: str, bad: float) -> None:
    packed, _ = matrix(T.Q4_0, 16, 64)
    x = activations(1, 64)
    x[0, 40] = bad
    assert not np.isfinite(packed.mul(x, isa)).any()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", PANELS, ids=lambda t: t.name)
@pytest.mark.parametrize("n_rows", (1, 15, 16, 17, 48))
def test_products_are_exact_up_to_rounding(type: QuantType, isa: str, n_rows: int) -> None:
    for n_cols in (32, 96, 576, 1056) if type in SMALL_BLOCKS else (256, 1280):
        packed, weights = matrix(type, n_rows, n_cols)
        for n_tokens in N_TOKENS if n_cols in (96, 256) or n_rows == 17 else (1, 9):
            x = activations(n_tokens, n_cols)
            got = packed.mul(x, isa)
            assert_close(got, weights, quantized(x), 2e-6)
            step = np.repeat(np.abs(x).reshape(n_tokens, -1, 32).max(axis=2) / 127, 32, axis=1)
            off = np.abs(got - x.astype(np.float64) @ weights.astype(np.float64).T)
            most = 0.501 * step.astype(np.float64) @ np.abs(weights).astype(np.float64).T
            assert np.all(off <= most + 1e-30)
            if n_tokens < 9:
                size = np.abs(x).astype(np.float64) @ np.abs(weights).astype(np.float64).T
                off = np.abs(packed.mul(x, isa, n_terms=2) - x.astype(np.float64) @ weights.astype(np.float64).T)
                assert np.all(off <= most / 250 + 2e-6 * size)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", (*FLOATS, *AS_ROWS), ids=lambda t: t.name)
def test_products_of_floats(type: QuantType, isa: str) -> None:
    for n_rows in (1, 15, 16, 17, 48):
        for n_cols in (1, 3, 32, 100, 1030) if type in FLOATS else (256, 768):
            packed, weights = matrix(type, n_rows, n_cols)
            for n_tokens in N_TOKENS if n_cols in (3, 256) else (1, 9):
                x = activations(n_tokens, n_cols)
                assert_close(packed.mul(x, isa), weights, x, 2e-6)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", (T.F32, T.F16, T.BF16), ids=lambda t: t.name)
def test_floats_reach_a_mean_square_error_of_1e_11(type: QuantType, isa: str) -> None:
    packed, weights = matrix(type, 64, 4864)
    x = activations(3, 4864)
    exact = x.astype(np.float64) @ weights.astype(np.float64).T
    assert np.sum((packed.mul(x, isa) - exact) ** 2) / np.sum(exact**2) < 1e-11


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type", (*FLOATS, *PANELS, T.Q8_K), ids=lambda t: t.name)
@pytest.mark.parametrize("n_terms", (1, 2))
def test_bits_do_not_depend_on_company_or_chunks(type: QuantType, isa: str, n_terms: int) -> None:
    n_rows, n_cols = 83, 1280
    packed, _ = matrix(type, n_rows, n_cols)
    x = activations(45, n_cols)
    whole = packed.mul(x, isa, n_terms=n_terms)
    for t0, t1 in ((0, 1), (7, 9), (41, 45)):
        few = packed.mul(np.ascontiguousarray(x[t0:t1]), isa, n_terms=n_terms)
        np.testing.assert_array_equal(few, whole[t0:t1])
    for first, end in ((0, 1), (1, 4), (2, 6), (5, 6)):
        for t0, t1 in ((0, 45), (3, 4), (5, 18)):
            part = packed.mul(x, isa, panels=(first, end), tokens=(t0, t1), n_terms=n_terms)
            rows = slice(16 * first, min(16 * end, n_rows))
            np.testing.assert_array_equal(part[t0:t1, rows], whole[t0:t1, rows])
            part[t0:t1, rows] = np.nan
            assert np.isnan(part).all()  # nothing else was written


@pytest.mark.parametrize("type", (*FLOATS, *PANELS), ids=lambda t: t.name)
def test_instruction_sets_agree(type: QuantType) -> None:
    packed, weights = matrix(type, 40, 768)
    x = activations(10, 768)
    size = np.abs(x) @ np.abs(weights).T
    scalar = packed.mul(x, "scalar")
    for isa in ISAS[1:]:
        assert np.all(np.abs(packed.mul(x, isa) - scalar) <= 1e-6 * size)


@pytest.mark.parametrize("type", WEIGHTS, ids=lambda t: t.name)
def test_packed_size(type: QuantType) -> None:
    n_rows, n_cols = 160, 2560
    elements, n_bytes = block_size(type)
    assert packed_bytes(type, n_rows, n_cols) <= 1.05 * n_rows * n_cols // elements * n_bytes
    assert uses_q8(type) == (type in PANELS)


def test_what_cannot_be_packed() -> None:
    assert packed_bytes(T.I32, 16, 32) < 0
    assert packed_bytes(T.Q8_1, 16, 32) < 0
    assert packed_bytes(99, 16, 32) < 0
    assert packed_bytes(T.Q4_0, 16, 48) < 0
    assert packed_bytes(T.Q4_K, 16, 128) < 0
    assert packed_bytes(T.Q4_0, 0, 32) < 0
    with pytest.raises(ValueError, match="cannot be packed"):
        PackedWeights(T.I32, 16, 32, np.zeros(2048, np.uint8))
    with pytest.raises(ValueError, match="do not hold"):
        PackedWeights(T.Q4_0, 16, 32, np.zeros(17 * 18, np.uint8))
