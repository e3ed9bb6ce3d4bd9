"""Every tensor type against the `gguf` package and the oracle's own floats, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from engine.gguf import block_size, dequantize, open_gguf, read_tensor
from engine.types import F32Array, QuantType, U8Array

DATA = Path(__file__).parents[2] / "data" / "quant_types"
NUMBERS = {QuantType.I8: np.int8, QuantType.I16: np.int16, QuantType.I32: np.int32, QuantType.I64: np.int64,
           QuantType.F64: np.float64}  # fmt: skip
# The package has no de-quantiser of these.
OWN = {*NUMBERS, QuantType.Q8_1, QuantType.Q8_K, QuantType.Q1_0}
BY_PACKAGE = [t for t in QuantType if t not in OWN]
# Halves that hold a scale: zero, subnormals, one, largest, infinity, NaN, and their negatives.
ODD_HALVES = [0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7E00, 0x8000, 0x8001, 0xBC00, 0xFBFF, 0xFC00]


def assert_same_bits(got: F32Array, expected: F32Array) -> None:
    """Equal to the bit, but for the sign and payload of a NaN."""
    assert got.dtype == expected.dtype == np.float32
    got_bits = np.where(np.isnan(got), np.float32(np.nan), got).view(np.uint32)
    expected_bits = np.where(np.isnan(expected), np.float32(np.nan), expected).view(np.uint32)
    np.testing.assert_array_equal(got_bits, expected_bits)


def package_floats(quant_type: QuantType, blocks: U8Array) -> F32Array:
    with np.errstate(all="ignore"):
        return gguf.dequantize(blocks, gguf.GGMLQuantizationType(quant_type)).astype(np.float32)


@pytest.mark.parametrize("quant_type", BY_PACKAGE, ids=lambda t: t.name)
def test_random_blocks_equal_the_package(quant_type: QuantType) -> None:
    n_values, n_bytes = block_size(quant_type)
    blocks = np.random.default_rng(7).integers(0, 256, (96, 4 * n_bytes), dtype=np.uint8)
    got = dequantize(quant_type, blocks.reshape(-1), (96, 4 * n_values))
    assert_same_bits(got, package_floats(quant_type, blocks))


@pytest.mark.parametrize("quant_type", BY_PACKAGE, ids=lambda t: t.name)
def test_odd_halves_everywhere_equal_the_package(quant_type: QuantType) -> None:
    """A block with each odd half float at each even offset: wherever the scale is, it meets them all."""
    n_values, n_bytes = block_size(quant_type)
    rng = np.random.default_rng(11)
    blocks = rng.integers(0, 256, (n_bytes // 2 + 1, len(ODD_HALVES), n_bytes), dtype=np.uint8)
    for i_place in range(n_bytes // 2):
        for i_half, half in enumerate(ODD_HALVES):
            blocks[i_place, i_half, 2 * i_place : 2 * i_place + 2] = half & 255, half >> 8
    rows = blocks.reshape(-1, n_bytes)
    got = dequantize(quant_type, rows.reshape(-1), (len(rows), n_values))
    assert_same_bits(got, package_floats(quant_type, rows))


@pytest.mark.parametrize("quant_type", [t for t in BY_PACKAGE if block_size(t)[0] > 1], ids=lambda t: t.name)
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_uniform_blocks_equal_the_package(quant_type: QuantType, byte: int) -> None:
    n_values, n_bytes = block_size(quant_type)
    blocks = np.full((2, n_bytes), byte, dtype=np.uint8)
    assert_same_bits(dequantize(quant_type, blocks.reshape(-1), (2, n_values)), package_floats(quant_type, blocks))


def test_sizes_equal_the_package() -> None:
    for quant_type in QuantType:
        if quant_type is QuantType.Q1_0:
            assert block_size(quant_type) == (128, 18)
        elif quant_type is not QuantType.Q8_1:  # the package counts its two halves as floats; no file holds the type
            assert block_size(quant_type) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(quant_type)]


@pytest.mark.parametrize("name", json.loads((DATA / "case.json").read_text())["types"])
def test_oracle_tensors(name: str) -> None:
    expected = np.load(DATA / f"{name.lower()}.npy")
    assert_same_bits(read_tensor(DATA / "model.gguf", f"{name.lower()}.weight"), expected)


@pytest.mark.parametrize("quant_type", NUMBERS, ids=lambda t: t.name)
def test_number_types_are_converted(quant_type: QuantType) -> None:
    numbers: npt.NDArray[np.generic] = np.arange(-60, 60).reshape(4, 30).astype(NUMBERS[quant_type])
    got = dequantize(quant_type, numbers.reshape(-1).view(np.uint8), (4, 30))
    np.testing.assert_array_equal(got, numbers.astype(np.float32))


def test_eight_bit_intermediate_types() -> None:
    rng = np.random.default_rng(3)
    q8_k = np.zeros(5, dtype=[("d", "<f4"), ("qs", "<i1", 256), ("bsums", "<i2", 16)])
    q8_1 = np.zeros(5, dtype=[("d", "<f2"), ("s", "<f2"), ("qs", "<i1", 32)])
    for blocks, quant_type in ((q8_k, QuantType.Q8_K), (q8_1, QuantType.Q8_1)):
        blocks["d"] = rng.normal(size=5)
        blocks["qs"] = rng.integers(-128, 128, blocks["qs"].shape)
        expected = blocks["d"].astype(np.float32)[:, None] * blocks["qs"].astype(np.float32)
        assert_same_bits(dequantize(quant_type, blocks.view(np.uint8), expected.shape), expected)


def test_unaligned_data() -> None:
    with open_gguf(DATA / "model.gguf") as file:
        data, shape = file.tensor_data("q6_k.weight"), file.tensor("q6_k.weight").shape
        shifted = np.concatenate([np.zeros(1, dtype=np.uint8), data])[1:]
        assert_same_bits(dequantize(QuantType.Q6_K, shifted, shape), dequantize(QuantType.Q6_K, data, shape))


def test_data_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="17 bytes of data, 18 expected"):
        dequantize(QuantType.Q4_0, np.zeros(17, dtype=np.uint8), (32,))
    with pytest.raises(ValueError, match="no multiple of 32"):
        dequantize(QuantType.Q4_0, np.zeros(18, dtype=np.uint8), (31,))
