"""Vision towers: the tiny ones' right rows, images of other sizes, hostile files."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import quantize

import cext.executor
import engine
from engine.arch.vision.qwen2vl import N_BLOCKS_MAX
from engine.context.header_graph import graph_text_of_file
from engine.errors import (
    EngineError,
    GGUFFormatError,
    HparamError,
    KernelStatusError,
    ModelFileError,
    OutOfMemoryError,
    ParamError,
    TensorMissingError,
    TensorShapeError,
    UnsupportedArchitectureError,
    UnsupportedCallError,
    UnsupportedModelError,
    UnsupportedQuantError,
)
from engine.gguf import open_gguf, read_tensor
from engine.gguf.writer import GGUFWriter, WriteValue
from engine.types import F32Array, QuantType
from tests.engine.oracle_cases import DATA, context, model, nmse
from tests.engine.vision_reference import Reference

CASES = ("smolvlm", "qwen2vl", "qwen25vl")


def tower(name: str) -> engine.ContextVision:
    return engine.load_vision(model("llama"), DATA / name / "mmproj.gguf")  # every tiny model is as wide


@cache
def image(name: str) -> F32Array:
    pixels: F32Array = np.load(DATA / name / "image.npy")
    return pixels


@pytest.mark.parametrize("name", CASES)
def test_the_rows_are_the_reference_s(name: str) -> None:
    assert nmse(tower(name).encode(image(name)), np.load(DATA / name / "expected_embd.npy")) < 1e-11


SIZES = [("smolvlm", (32, 32)), ("qwen2vl", (16, 16)), ("qwen2vl", (16, 176)), ("qwen2vl", (208, 112))]
SIZES += [("qwen25vl", (28, 28)), ("qwen25vl", (252, 196)), ("qwen25vl", (112, 224)), ("qwen25vl", (28, 336))]


@pytest.mark.parametrize(("name", "size"), SIZES)
def test_images_of_other_sizes_against_float64(name: str, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(size[0]).integers(0, 256, (*size, 3)).astype(np.uint8)
    want = Reference(DATA / name / "mmproj.gguf").encode(pixels / 255.0)
    assert nmse(tower(name).encode(pixels), want.astype(np.float32)) < 1e-11


@pytest.mark.parametrize("isa", cext.executor.isas())
def test_every_instruction_set_gives_them(isa: str) -> None:
    best = cext.executor.isa()
    cext.executor.force_isa(isa)
    try:
        assert (
            nmse(tower("qwen25vl").encode(image("qwen25vl")), np.load(DATA / "qwen25vl" / "expected_embd.npy")) < 1e-11
        )
    finally:
        cext.executor.force_isa(best)


def test_an_image_gives_the_same_bits_after_a_larger_one_and_with_one_thread() -> None:
    seen = tower("qwen25vl")
    small = image("qwen25vl")[:84, :56]
    alone = seen.encode(small)
    seen.encode(image("qwen25vl"))
    assert np.array_equal(seen.encode(small), alone)
    with engine.load_model(DATA / "llama" / "model.gguf", n_threads=1) as single:
        assert np.array_equal(engine.load_vision(single, DATA / "qwen25vl" / "mmproj.gguf").encode(small), alone)


def test_floats_from_0_to_1_are_the_same_image() -> None:
    seen = tower("qwen2vl")
    floats = image("qwen2vl").astype(np.float32) / np.float32(255)
    assert np.array_equal(seen.encode(floats), seen.encode(image("qwen2vl")))


def test_a_grid_says_how_many_rows_an_image_gives() -> None:
    wide, square = tower("qwen2vl"), tower("smolvlm")
    assert [wide.grid(*size) for size in ((32, 48), (31, 49), (1, 1), (40, 500))] == [(2, 3), (2, 3), (1, 1), (2, 31)]
    assert wide.encode(image("qwen2vl")[:17, :41]).shape == (3, 64)
    assert [square.grid(*size) for size in ((32, 32), (7, 500))] == [(2, 2)] * 2
    assert square.encode(image("qwen2vl")).shape == (4, 64)


@pytest.mark.parametrize("size", [(16384, 16384), (16384, 1), (5000, 3000), (1025, 1024)])
def test_large_images_are_scaled_down_to_what_a_tower_takes(size: tuple[int, int]) -> None:
    rows, columns = tower("qwen2vl").grid(*size)
    assert 1 <= rows * columns <= N_BLOCKS_MAX
    if min(size) > 16:
        assert rows * columns > 0.95 * N_BLOCKS_MAX
        assert rows / columns == pytest.approx(size[0] / size[1], rel=0.03)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((8, 8), np.uint8),
        np.zeros((8, 8, 4), np.uint8),
        np.zeros((0, 8, 3), np.uint8),
        np.zeros((8, 8, 3), np.int64),
        np.full((8, 8, 3), np.nan, np.float32),
        np.zeros((1, 20_000, 3), np.uint8),
    ],
)
def test_what_is_no_image_is_refused(wrong: F32Array) -> None:
    with pytest.raises(ParamError, match="an image of"):
        tower("qwen2vl").encode(wrong)


def test_a_text_model_is_no_tower() -> None:
    with pytest.raises(HparamError, match="no vision tower"):
        engine.load_vision(model("llama"), DATA / "llama" / "model.gguf")


Changes = dict[str, WriteValue | None]


def changed(source: Path, target: Path, changes: Changes, quant: QuantType = QuantType.F32) -> Path:
    """A copy of a file with other metadata (None: without it), or with other tensors under `tensor:` names.

    Matrices get the type `quant`, convolution kernels F16 with it.
    """
    with open_gguf(source) as file:
        writer = GGUFWriter(target, file.architecture)
        for key, value in {**file.metadata, **{k: v for k, v in changes.items() if ":" not in k}}.items():
            if value is not None and key != "general.architecture":
                writer.add(key, value)
        for name in file.tensors:
            values = changes.get(f"tensor:{name}", read_tensor(source, name))
            if values is not None:
                array = np.asarray(values)
                to = {1: QuantType.F32, 2: quant, 4: QuantType.F16 if quant else QuantType.F32}[array.ndim]
                to = to if array.dtype == np.float32 else QuantType.I32
                data = array if to is QuantType.I32 else quantize(array, GGMLQuantizationType(to))
                writer.add_tensor(name, to, data, array.shape)
        writer.write()
    return target


HOSTILE: list[tuple[str, Changes, type[EngineError]]] = [
    ("qwen2vl", {"clip.projector_type": "ldp"}, UnsupportedArchitectureError),
    ("qwen2vl", {"clip.has_vision_encoder": False}, HparamError),
    ("qwen2vl", {"clip.vision.attention.head_count": 0}, HparamError),
    ("qwen2vl", {"clip.vision.attention.head_count": 3}, HparamError),
    ("qwen2vl", {"clip.vision.attention.head_count": 32}, HparamError),
    ("qwen2vl", {"clip.vision.patch_size": 0}, HparamError),
    ("qwen2vl", {"clip.vision.patch_size": 14}, TensorShapeError),
    ("qwen2vl", {"clip.vision.embedding_length": 128}, TensorShapeError),
    ("qwen2vl", {"clip.vision.block_count": 4}, TensorMissingError),
    ("qwen2vl", {"clip.vision.block_count": 2**31 - 1}, HparamError),
    ("qwen2vl", {"clip.vision.spatial_merge_size": 3}, TensorShapeError),
    ("qwen2vl", {"clip.vision.image_mean": [0.5, 0.5]}, HparamError),
    ("qwen2vl", {"clip.vision.image_std": [0.5, 0.0, 0.5]}, HparamError),
    ("qwen2vl", {"clip.vision.attention.layer_norm_epsilon": float("nan")}, HparamError),
    ("qwen2vl", {"tensor:v.patch_embd.weight.1": None}, TensorMissingError),
    ("qwen2vl", {"tensor:v.blk.0.ffn_up.weight": None}, TensorMissingError),
    ("qwen2vl", {"tensor:mm.0.bias": np.zeros(9, np.float32)}, TensorShapeError),
    ("qwen2vl", {"tensor:v.patch_embd.weight": np.zeros((64, 3, 8, 8), np.int32)}, UnsupportedQuantError),
    ("qwen25vl", {"clip.vision.window_size": 27}, HparamError),
    ("smolvlm", {"clip.vision.projector.scale_factor": None}, HparamError),
    ("smolvlm", {"clip.vision.projector.scale_factor": 3}, HparamError),
    ("smolvlm", {"clip.vision.image_size": 64}, TensorShapeError),
    ("smolvlm", {"tensor:v.position_embd.weight": np.zeros((15, 48), np.float32)}, TensorShapeError),
]


@pytest.mark.parametrize(("name", "changes", "kind"), HOSTILE, ids=lambda value: str(value)[:60])
def test_what_does_not_fit_is_said(tmp_path: Path, name: str, changes: Changes, kind: type[EngineError]) -> None:
    path = changed(DATA / name / "mmproj.gguf", tmp_path / "mmproj.gguf", changes)
    with pytest.raises(kind):
        engine.load_vision(model("llama"), path)


@pytest.mark.parametrize(("quant", "bound"), [(QuantType.F16, 1e-6), (QuantType.Q8_0, 1e-3)])
@pytest.mark.parametrize("name", ["qwen2vl", "qwen25vl"])
def test_smaller_types_give_nearly_the_same(tmp_path: Path, name: str, quant: QuantType, bound: float) -> None:
    path = changed(DATA / name / "mmproj.gguf", tmp_path / "mmproj.gguf", {}, quant)
    got = engine.load_vision(model("llama"), path).encode(image(name))
    assert nmse(got, np.load(DATA / name / "expected_embd.npy")) < bound


def test_matrices_by_their_old_names_are_the_same(tmp_path: Path) -> None:
    source = DATA / "smolvlm" / "mmproj.gguf"
    changes: Changes = {}
    for blk in ("v.blk.0", "v.blk.1"):
        for part in ("weight", "bias"):
            changes[f"tensor:{blk}.ffn_up.{part}"] = read_tensor(source, f"{blk}.ffn_down.{part}")
            changes[f"tensor:{blk}.ffn_down.{part}"] = read_tensor(source, f"{blk}.ffn_up.{part}")
    old = engine.load_vision(model("llama"), changed(source, tmp_path / "mmproj.gguf", changes))
    assert np.array_equal(old.encode(image("smolvlm")), tower("smolvlm").encode(image("smolvlm")))


@pytest.mark.parametrize("name", ["qwen2vl", "qwen25vl"])
def test_positions_are_the_reference_s(name: str) -> None:
    case = json.loads((DATA / name / "case.json").read_text())
    height, width = image(name).shape[:2]
    assert tower(name).positions(height, width, 6).tolist() == case["image_positions"]
    assert tower("smolvlm").positions(5, 5, 6).tolist() == [6, 7, 8, 9]


def test_a_tower_of_another_width_is_refused(tmp_path: Path) -> None:
    changes: Changes = {
        "clip.vision.projection_dim": 32,
        "tensor:mm.2.weight": np.zeros((32, 256), np.float32),
        "tensor:mm.2.bias": np.zeros(32, np.float32),
    }
    path = changed(DATA / "qwen2vl" / "mmproj.gguf", tmp_path / "mmproj.gguf", changes)
    with pytest.raises(HparamError, match="rows of 32 values do not fit a model with embeddings of 64"):
        engine.load_vision(model("llama"), path)


def mutated(data: bytes, n: int) -> Iterator[bytes]:
    """Copies with one to three bytes of the header changed, or cut short."""
    rng = random.Random(5)
    for _ in range(n):
        copy = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 3))):
            copy[rng.randrange(4096)] = rng.choice((0, 1, 0x7F, 0xFF, rng.randrange(256)))
        yield bytes(copy[: rng.choice((len(copy), len(copy), len(copy), rng.randrange(len(copy))))])


@pytest.mark.parametrize("name", ["smolvlm", "qwen25vl"])
def test_mutated_files_give_errors_of_the_file_or_rows(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mmproj.gguf"
    refused = 0
    for data in mutated((DATA / name / "mmproj.gguf").read_bytes(), 150):
        path.write_bytes(data)
        try:
            assert engine.load_vision(model("llama"), path).encode(image(name)).shape[1] == 64
        except (ModelFileError, UnsupportedModelError, OutOfMemoryError):
            refused += 1
        except KernelStatusError as error:
            assert "not finite" in str(error)
    assert refused > 30


def test_a_missing_file_is_said() -> None:
    with pytest.raises(GGUFFormatError):
        engine.load_vision(model("llama"), DATA / "nowhere.gguf")


# As in test_graph: a digest changes only when what the tower computes changes.
DIGESTS = {"smolvlm": "651fddff62b5107a", "qwen2vl": "c69ef602d14bd006", "qwen25vl": "154b1be5fef8cb32"}


@pytest.mark.parametrize("name", CASES)
def test_a_tower_s_graph_needs_the_header_only(name: str) -> None:
    text = graph_text_of_file(DATA / name / "mmproj.gguf")
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == DIGESTS[name], text


def test_a_graph_of_a_file_without_its_tensors_is_refused(tmp_path: Path) -> None:
    path = changed(DATA / "smolvlm" / "mmproj.gguf", tmp_path / "mmproj.gguf", {"tensor:v.post_ln.bias": None})
    with pytest.raises(TensorMissingError):
        graph_text_of_file(path)


def test_an_encode_is_stopped_and_can_be_repeated() -> None:
    seen = tower("qwen25vl")
    seen.abort_flag[0] = 1
    assert seen.encode(image("qwen25vl")).shape == (0, 64)
    seen.abort_flag[0] = 0
    seen.set_abort_callback(lambda: True)
    assert seen.encode(image("qwen25vl")).shape == (0, 64)
    seen.set_abort_callback(None)
    assert seen.perf_get_data().n_p_eval == 0
    assert nmse(seen.encode(image("qwen25vl")), np.load(DATA / "qwen25vl" / "expected_embd.npy")) < 1e-11
    assert seen.perf_get_data().n_p_eval == 120


def test_values_that_are_not_finite_are_said(tmp_path: Path) -> None:
    bias = np.zeros(64, np.float32)
    bias[3] = np.inf
    changes: Changes = {"tensor:v.blk.1.attn_out.bias": bias}
    seen = engine.load_vision(model("llama"), changed(DATA / "qwen2vl" / "mmproj.gguf", tmp_path / "m.gguf", changes))
    with pytest.raises(KernelStatusError, match=r"encode \(attn_out-1\): values that are not finite"):
        seen.encode(image("qwen2vl"))


@pytest.mark.parametrize("call", ["decode", "get_kv_self", "state_get_data", "get_logits", "set_adapter_lora", "n_ctx"])
def test_what_a_tower_does_not_have_is_said(call: str) -> None:
    with pytest.raises(UnsupportedCallError, match=f"{call} is not available on ContextVision"):
        getattr(tower("qwen2vl"), call)()


def test_a_closed_tower_says_so() -> None:
    seen = tower("qwen2vl")
    seen.close()
    seen.close()
    with pytest.raises(UnsupportedCallError, match="closed"):
        seen.encode(image("qwen2vl"))


def test_rows_stand_in_a_text_like_the_tokens_that_they_are() -> None:
    tokens, ids = [1, 9, 200, 31, 7], [3, 70, 5, 260]
    rows = read_tensor(DATA / "llama" / "model.gguf", "token_embd.weight")[ids]
    got, want = context("llama"), context("llama")
    got.decode(engine.Batch.from_tokens(tokens))
    got.decode(engine.Batch.from_embeddings(rows, tower("smolvlm").positions(32, 32, len(tokens)), logits="all"))
    want.decode(engine.Batch.from_tokens(tokens + ids, logits=[False] * 5 + [True] * 4))
    assert nmse(got.get_logits(), want.get_logits()) < 1e-11
    for ctx in (got, want):
        ctx.decode(engine.Batch.from_tokens([4], None))
    assert nmse(got.get_logits(), want.get_logits()) < 1e-11
