"""What the writer writes, the reader and the `gguf` package read back."""

from __future__ import annotations

import errno
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ParamError
from engine.gguf import GGUFWriter, StringArray, ValueType, block_size, open_gguf
from engine.gguf.values import SCALAR_DTYPES
from engine.gguf.writer import WriteValue
from engine.types import QuantType

VALUES: dict[str, WriteValue] = {
    "a.uint": 7,
    "a.int": -7,
    "a.big": 2**40,
    "a.negative": -(2**40),
    "a.float": 0.5,
    "a.bool": True,
    "a.text": "Käse",
    "a.texts": ["x", "", "ü"],
    "a.bytes": [b"\xff", b"y"],
    "a.ints": [1, 2, -3],
    "a.floats": [1.0, 2.5],
    "a.bools": [True, False],
    "a.none": [],
    "a.u8": np.arange(5, dtype=np.uint8),
    "a.f64": np.arange(3, dtype=np.float64),
}


def write_values(path: Path) -> None:
    writer = GGUFWriter(path, "llama", alignment=64)
    for key, value in VALUES.items():
        writer.add(key, value)
    writer.add("a.strings", StringArray.from_strings([b"p", b"q"]))
    writer.add_tensor("f", QuantType.F32, np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("q", QuantType.Q8_0, np.arange(68, dtype=np.uint8), (2, 32))
    writer.add_tensor("t", QuantType.F16, np.arange(6, dtype=np.float16).reshape(2, 3).T)
    writer.write()


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_values(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]
    with open_gguf(path) as file:
        assert (file.version, file.alignment, file.architecture) == (3, 64, "llama")
        for key, value in VALUES.items():
            got = file.metadata[key]
            if isinstance(got, StringArray):
                assert isinstance(value, list)
                assert list(got) == [item.encode() if isinstance(item, str) else item for item in value]
            elif isinstance(got, np.ndarray):
                assert got.tolist() == np.asarray(value).tolist(), key
            else:
                assert got == value and type(got) is type(value), key
        assert list(file.get_strings("a.strings")) == [b"p", b"q"]
        assert file.get_strings("a.none").lengths.size == 0
        assert file.tensor("q").shape == (2, 32) and file.tensor_data("q").tobytes() == bytes(range(68))
        transposed = file.tensor_data("t").view(np.float16).reshape(file.tensor("t").shape)
        assert transposed.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
        assert all(info.offset % 64 == 0 for info in file.tensors.values())


def test_the_package_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_values(path)
    reader = gguf.GGUFReader(path)
    assert reader.fields["a.text"].contents() == "Käse"
    assert reader.fields["a.ints"].contents() == [1, 2, -3]
    assert {t.name: t.data.tobytes() for t in reader.tensors}["q"] == bytes(range(68))
    assert [t.name for t in reader.tensors] == ["f", "q", "t"]


def test_the_reader_reads_the_packages(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_token_list([b"a", b"bc"])
    writer.add_tensor("w", np.arange(8, dtype=np.float32).reshape(2, 4))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open_gguf(path) as file:
        assert (file.architecture, file.get_int("llama.block_count")) == ("llama", 3)
        assert list(file.get_strings("tokenizer.ggml.tokens")) == [b"a", b"bc"]
        assert file.tensor_data("w").view(np.float32).tolist() == list(range(8))


@pytest.mark.parametrize("value_type", SCALAR_DTYPES, ids=lambda t: t.name)
def test_every_scalar_type(tmp_path: Path, value_type: ValueType) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add("one", 1, value_type)
    writer.add("many", [0, 1, 1], value_type)
    writer.write()
    fields = gguf.GGUFReader(path).fields
    assert fields["one"].types[0].name == value_type.name
    assert fields["many"].types[-1].name == value_type.name
    with open_gguf(path) as file:
        assert file.metadata["one"] == 1
        many = file.metadata["many"]
        assert isinstance(many, np.ndarray)
        assert many.tolist() == [0, 1, 1] and many.dtype == SCALAR_DTYPES[value_type] and not many.flags.writeable


@pytest.mark.parametrize(
    ("value", "value_type"),
    [(300, ValueType.UINT8), (-1, ValueType.UINT64), (0.5, ValueType.INT32), ([1, 2**31], ValueType.INT32), (1, ValueType.ARRAY),
     (2**64, None), (np.zeros((2, 2), dtype=np.int32), None), (np.zeros(2, dtype=np.complex64), None),
     (np.zeros(2, dtype=np.float16), None)],
)  # fmt: skip
def test_values_that_do_not_fit(tmp_path: Path, value: WriteValue, value_type: ValueType | None) -> None:
    with pytest.raises(ParamError):
        GGUFWriter(tmp_path / "model.gguf", "llama").add("key", value, value_type)


def test_misuse(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    floats = np.zeros((2, 4), dtype=np.float32)
    writer.add_tensor("w", QuantType.F32, floats)
    with pytest.raises(ParamError, match="taken"):
        writer.add("general.architecture", "x")
    with pytest.raises(ParamError, match="taken"):
        writer.add_tensor("w", QuantType.F32, floats)
    with pytest.raises(ParamError, match="36 expected"):
        writer.add_tensor("q", QuantType.Q4_0, floats, (2, 32))
    with pytest.raises(ParamError, match="no multiple of 32"):
        writer.add_tensor("q", QuantType.Q4_0, floats, (2, 4))
    with pytest.raises(ParamError, match="shape"):
        writer.add_tensor("q", QuantType.F32, floats, (0, 4))
    with pytest.raises(ParamError, match="alignment"):
        GGUFWriter(tmp_path / "model.gguf", "llama", alignment=4)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    write_values(path)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        GGUFWriter(path, "llama").write()
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["model.gguf"]


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.binary(max_size=20), max_size=30),
    quant_type=st.sampled_from(QuantType),
    rows=st.lists(st.integers(1, 3), max_size=3),
)
def test_any_strings_and_tensors(tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], quant_type: QuantType,
                                 rows: list[int]) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    n_values, n_bytes = block_size(quant_type)
    shape = (*rows, 2 * n_values)
    data = np.arange(int(np.prod(rows, dtype=np.int64)) * 2 * n_bytes).astype(np.uint8)
    writer = GGUFWriter(path, "llama")
    writer.add("texts", texts)
    writer.add_tensor("first", quant_type, data, shape)
    writer.add_tensor("second", quant_type, data, shape)
    writer.write()
    with open_gguf(path) as file:
        assert list(file.get_strings("texts")) == texts
        for name in ("first", "second"):
            assert file.tensor(name).shape == shape
            assert file.tensor_data(name).tobytes() == data.tobytes()
