"""Models in several files: joined from the path of any part, refused where the parts do not fit together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import GGUFFormatError
from engine.gguf import GGUFWriter, ValueType, open_gguf, read_tensor
from engine.types import QuantType


def write_part(folder: Path, i: int, count: int = 3, *, no: int | None = None, said: int | None = None,
               tensors: int = 3, name: str | None = None) -> Path:  # fmt: skip
    path = folder / f"model-{i + 1:05}-of-{count:05}.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add("split.no", i if no is None else no, ValueType.UINT16)
    writer.add("split.count", count if said is None else said, ValueType.UINT16)
    writer.add("split.tensors.count", tensors, ValueType.INT32)
    if i == 0:
        writer.add("llama.block_count", 3)
    writer.add_tensor(name or f"blk.{i}.w", QuantType.F32, np.full((2, 4), i, dtype=np.float32))
    writer.write()
    return path


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return [write_part(tmp_path, i) for i in range(3)]


@pytest.mark.parametrize("opened", range(3))
def test_any_part_opens_all(parts: list[Path], opened: int) -> None:
    with open_gguf(parts[opened]) as file:
        assert file.paths == tuple(parts)
        assert file.path == parts[0]
        assert file.size_bytes == sum(part.stat().st_size for part in parts)
        assert file.get_int("llama.block_count") == 3
        assert list(file.tensors) == ["blk.0.w", "blk.1.w", "blk.2.w"]
        assert [file.tensor_location(name)[0] for name in file.tensors] == parts
        assert file.tensor_data("blk.2.w").view(np.float32).tolist() == [2.0] * 8
        file.release()
    assert read_tensor(parts[0], "blk.1.w").tolist() == [[1.0] * 4] * 2


def refused(path: Path, message: str) -> None:
    with pytest.raises(GGUFFormatError, match=message):
        open_gguf(path)


def test_a_missing_part(parts: list[Path]) -> None:
    parts[1].unlink()
    refused(parts[0], "part model-00002-of-00003.gguf is missing")


def test_a_name_that_is_not_one_of_a_part(parts: list[Path], tmp_path: Path) -> None:
    refused(parts[0].rename(tmp_path / "renamed.gguf"), "one of 3 parts, but its name")


def test_a_name_with_another_count(parts: list[Path], tmp_path: Path) -> None:
    refused(parts[0].rename(tmp_path / "model-00001-of-00004.gguf"), "3 parts, but the file's name says 4")


def test_parts_in_the_wrong_order(parts: list[Path], tmp_path: Path) -> None:
    write_part(tmp_path, 1, no=2)
    refused(parts[0], r"split\.no'?: is 2, expected 1")


def test_a_part_that_counts_otherwise(parts: list[Path], tmp_path: Path) -> None:
    write_part(tmp_path, 2, said=4)
    refused(parts[0], r"split\.count'?: is 4, expected 3")


def test_a_tensor_in_two_parts(parts: list[Path], tmp_path: Path) -> None:
    write_part(tmp_path, 2, name="blk.0.w")
    refused(parts[0], r"tensor 'blk\.0\.w'?: is in an earlier part too")


def test_fewer_tensors_than_announced(parts: list[Path], tmp_path: Path) -> None:
    write_part(tmp_path, 0, tensors=4)
    refused(parts[0], "4 tensors announced, 3 in the parts")


def test_a_damaged_later_part(parts: list[Path]) -> None:
    parts[2].write_bytes(parts[2].read_bytes()[:40])
    refused(parts[0], "model-00003-of-00003.gguf: ")


def test_an_absurd_count(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add("split.count", 2**31 - 1)
    writer.write()
    refused(path, "at most 99,999")


def test_a_count_of_one_is_a_model_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add("split.count", 1, ValueType.UINT16)
    writer.write()
    assert open_gguf(path).paths == (path,)
