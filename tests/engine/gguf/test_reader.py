"""A sound file says what was put in; every way to be unsound is refused with the field and its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.errors import GGUFFormatError, HparamError, ModelFileError, TensorMissingError, UnsupportedQuantError
from engine.gguf import GGUFFile, StringArray, TensorInfo, ValueType, open_gguf, read_tensor
from engine.types import QuantType

from .craft import Crafted, start, tiny_model

Make = Callable[[bytes | bytearray], Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Puts bytes into a file."""

    def make_file(data: bytes | bytearray) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return make_file


@pytest.fixture
def tiny(make: Make) -> GGUFFile:
    return open_gguf(make(tiny_model().data))


def refused(path: Path | str) -> GGUFFormatError:
    with pytest.raises(GGUFFormatError) as caught:
        open_gguf(path)
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions(make: Make, version: int) -> None:
    file = open_gguf(make(tiny_model().set("version", version)))
    assert (file.version, file.alignment, len(file.paths)) == (version, 32, 1)
    assert file.architecture == "llama"


def test_metadata(tiny: GGUFFile) -> None:
    assert tiny.get_int("llama.block_count") == 2
    assert tiny.get_float("llama.rope.freq_base") == 10000.0
    assert tiny.get_float("llama.block_count") == 2.0
    assert tiny.get_bool("tokenizer.ggml.add_bos_token") is True
    tokens = tiny.get_strings("tokenizer.ggml.tokens")
    assert (len(tokens), list(tokens), tokens[2], list(tokens[1:])) == (
        3,
        [b"a", b"", b"\xff\xfe"],
        b"\xff\xfe",
        [b"", b"\xff\xfe"],
    )
    assert tokens[-1] == b"\xff\xfe"
    with pytest.raises(IndexError):
        tokens[3]
    assert tiny.get_floats("tokenizer.ggml.scores").tolist() == [0.0, -1.0, -2.0]
    assert tiny.get_ints("llama.flags").tolist() == [1, 0]
    assert tiny.get_ints("llama.block_count").tolist() == [2]
    assert tiny.has("llama.flags") and not tiny.has("llama.flag")


def test_defaults(tiny: GGUFFile) -> None:
    assert tiny.get_int("no", 7) == 7
    assert tiny.get_int("no", None) is None
    assert tiny.get_str("no", "text") == "text"
    assert tiny.get_strings("no", None) is None


def test_wrong_reads_name_the_key(tiny: GGUFFile) -> None:
    reads: list[tuple[Callable[[], object], str]] = [
        (lambda: tiny.get_int("no"), "no: is missing"),
        (lambda: tiny.get_int("general.architecture"), "integer expected, got str 'llama'"),
        (lambda: tiny.get_int("tokenizer.ggml.add_bos_token"), "integer expected, got bool"),
        (lambda: tiny.get_int("llama.block_count", hi=1), "2 is not within 0 to 1"),
        (lambda: tiny.get_float("tokenizer.ggml.scores"), "a number expected, got an array of 3 float32"),
        (lambda: tiny.get_bool("llama.block_count"), "bool expected"),
        (lambda: tiny.get_str("tokenizer.ggml.tokens"), "text expected, got an array of 3 strings"),
        (lambda: tiny.get_ints("tokenizer.ggml.scores"), "array of integers expected"),
        (lambda: tiny.get_floats("tokenizer.ggml.tokens"), "array of numbers expected"),
        (lambda: tiny.get_strings("llama.flags"), "array of strings expected"),
    ]
    for read, message in reads:
        with pytest.raises(HparamError, match=message):
            read()


def test_floats_must_be_finite(make: Make) -> None:
    file = open_gguf(make(tiny_model().set("llama.rope.freq_base.value", float("nan"))))
    with pytest.raises(HparamError, match="not finite"):
        file.get_float("llama.rope.freq_base")


def test_tensors(tiny: GGUFFile) -> None:
    data_start = tiny_model().fields["data"][0]
    assert list(tiny.tensors) == ["token_embd.weight", "blk.0.attn_q.weight", "output_norm.weight"]
    info = tiny.tensor("blk.0.attn_q.weight")
    assert info == TensorInfo("blk.0.attn_q.weight", QuantType.Q4_0, (2, 32), data_start + 96, 36, 64, 0)
    assert tiny.tensor_data("blk.0.attn_q.weight").tobytes() == bytes(range(96, 132))
    assert tiny.tensor_location("blk.0.attn_q.weight") == (tiny.path, data_start + 96)
    with pytest.raises(TensorMissingError, match=r"'output\.weight' is missing"):
        tiny.tensor_data("output.weight")
    with pytest.raises(ValueError, match="read-only"):
        tiny.tensor_data("token_embd.weight")[0] = 1


def test_views_outlive_close(tiny: GGUFFile) -> None:
    data = tiny.tensor_data("token_embd.weight")
    tiny.release()
    tiny.release("token_embd.weight")
    tiny.close()
    tiny.close()
    assert data.tobytes() == bytes(range(96))


def test_read_tensor(make: Make) -> None:
    path = make(tiny_model().data)
    expected = np.arange(96, dtype=np.uint8).view(np.float32).reshape(3, 8)
    np.testing.assert_array_equal(read_tensor(path, "token_embd.weight"), expected)


def test_no_tensors_and_no_metadata(make: Make) -> None:
    file = open_gguf(make(start().data))
    assert (len(file.metadata), len(file.tensors), file.size_bytes) == (0, 0, 24)
    with pytest.raises(HparamError, match=r"general\.architecture: is missing"):
        _ = file.architecture


def test_a_sparse_file_takes_no_memory_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    for value_type, size in ((ValueType.BOOL, 1), (ValueType.STRING, 8), (ValueType.FLOAT64, 8)):
        crafted = start(n_kv=1)
        crafted.key_array("a", value_type, 2**33 // size)
        path.write_bytes(crafted.data)
        os.truncate(path, 2**33 + 200)
        assert "at most 16,777,216 are read" in str(refused(path))
    crafted = start(n_kv=1)
    crafted.string("a", b"a")
    crafted.number("type", "<I", ValueType.STRING)
    crafted.number("length", "<Q", 2**33)
    path.write_bytes(crafted.data)
    os.truncate(path, 2**33 + 200)
    assert "at most 67,108,864 are read" in str(refused(path))


def test_every_truncation_is_refused(make: Make) -> None:
    data = tiny_model().data
    for length in range(len(data)):
        assert 0 <= refused(make(data[:length])).offset <= length


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("version", 0x03000000, "big-endian"),
        ("version", 1, "version 1 is not supported"),
        ("version", 4, "version 4 is not supported"),
        ("tensor_count", 4, "length of name of tensor 3"),
        ("tensor_count", 2**63, "has room for"),
        ("tensor_count", 2**64 - 1, "has room for"),
        ("kv_count", 9, ""),
        ("kv_count", 2**40, "has room for"),
        ("general.architecture.length", 0, "expected 1 to 65,535"),
        ("general.architecture.length", 2**64 - 1, "expected 1 to 65,535"),
        ("general.architecture.type", 13, "value type 13 is not known"),
        ("general.architecture.value.length", 2**62, "bytes needed"),
        ("general.alignment.value", 0, "multiple of 8"),
        ("general.alignment.value", 12, "multiple of 8"),
        ("general.alignment.value", 2**31, "multiple of 8"),
        ("general.alignment.type", ValueType.FLOAT32, "multiple of 8"),
        ("tokenizer.ggml.add_bos_token.value", 2, "a bool of value 2"),
        ("tokenizer.ggml.tokens.n_items", 2**61, "has room for"),
        ("tokenizer.ggml.tokens.item_type", ValueType.ARRAY, "arrays of arrays"),
        ("tokenizer.ggml.tokens.item_type", 99, "value type 99"),
        ("token1.length", 2**64 - 1, "string 1 of kv 'tokenizer.ggml.tokens'"),
        ("token2.length", 2**63, "string 2 of kv 'tokenizer.ggml.tokens'"),
        ("tokenizer.ggml.scores.n_items", 2**62, "has room for"),
        ("llama.flags.item_type", ValueType.UINT16, "name of tensor 0"),
        ("token_embd.weight.n_dims", 0, "0 dimensions"),
        ("token_embd.weight.n_dims", 5, "5 dimensions"),
        ("token_embd.weight.n_dims", 2**32 - 1, "dimensions"),
        ("token_embd.weight.ne0", 0, "is zero"),
        ("token_embd.weight.ne1", 2**63, "more than the whole file"),
        ("token_embd.weight.ne1", 2**62 + 1, "more than the whole file"),
        ("token_embd.weight.ne1", 5, "overlap"),
        ("blk.0.attn_q.weight.ne0", 33, "no multiple of Q4_0's block of 32"),
        ("blk.0.attn_q.weight.offset", 64, "overlap"),
        ("blk.0.attn_q.weight.offset", 97, "no multiple of the alignment"),
        ("output_norm.weight.offset", 192, "would end at byte"),
        ("output_norm.weight.offset", 2**64 - 32, "would end at byte"),
    ],
)  # fmt: skip
def test_broken_fields_are_refused(make: Make, field: str, value: int, message: str) -> None:
    assert message in str(refused(make(tiny_model().set(field, value))))


def test_unknown_tensor_type(make: Make) -> None:
    for number in (4, 99, 2**32 - 1):
        with pytest.raises(UnsupportedQuantError, match=rf"number {number} \(tensor 'token_embd\.weight'\)"):
            open_gguf(make(tiny_model().set("token_embd.weight.type", number)))


def test_bool_arrays_hold_bools(make: Make) -> None:
    crafted = tiny_model()
    at, _ = crafted.fields["llama.flags.n_items"]
    crafted.data[at + 8] = 2
    assert "other values than 0 and 1" in str(refused(make(crafted.data)))


def two_keys(first: bytes, second: bytes) -> Crafted:
    crafted = start(n_kv=2)
    for key in (first, second):
        crafted.string("key", key)
        crafted.number("type", "<I", ValueType.BOOL)
        crafted.number("value", "<B", 0)
    return crafted


def test_keys(make: Make) -> None:
    assert "appears twice" in str(refused(make(two_keys(b"a.b", b"a.b").data)))
    error = refused(make(two_keys(b"a.b", b"a\xff").data))
    assert ("is not valid UTF-8" in error.reason, error.offset) == (True, 24 + 16 + 8 + 1)
    assert "control characters" in str(refused(make(two_keys(b"a.b", b"a\n").data)))


def test_tensor_names(make: Make) -> None:
    crafted = start(n_tensors=2)
    crafted.tensor("a", QuantType.F32, (1,), 0)
    crafted.tensor("a", QuantType.F32, (1,), 32)
    assert "tensor 'a'" in str(refused(make(crafted.data + bytes(96))))


def test_text_values_may_be_broken_utf8(make: Make) -> None:
    crafted = start(n_kv=1)
    crafted.key_string("general.name", b"caf\xe9")
    assert open_gguf(make(crafted.data)).get_str("general.name") == "caf\N{REPLACEMENT CHARACTER}"


def test_integers_beyond_63_bits(make: Make) -> None:
    crafted = start(n_kv=1)
    crafted.key_array("a", ValueType.UINT64, 1)
    crafted.number("item", "<Q", 2**63)
    with pytest.raises(HparamError, match="63 bits"):
        open_gguf(make(crafted.data)).get_ints("a")


@pytest.mark.parametrize(
    "data", [b"", b"GGUF", b"GGUF" + bytes(33), b"PK\x03\x04" * 30, b"<!doctype html><html></html>"]
)
def test_what_is_no_model(make: Make, data: bytes) -> None:
    refused(make(data))


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "absent.gguf"))
    assert "regular file" in str(refused(tmp_path))
    assert "null" in str(refused("a\0b"))
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "regular file" in str(refused(tmp_path / "pipe.gguf"))
    if os.geteuid() != 0:
        (tmp_path / "secret.gguf").touch(mode=0o000)
        assert "denied" in str(refused(tmp_path / "secret.gguf"))


def test_a_file_that_changes_is_noticed(make: Make) -> None:
    path = make(tiny_model().data)
    with open_gguf(path) as file:
        file.check_unchanged()
        with path.open("ab") as other:
            other.write(b"x")
        with pytest.raises(GGUFFormatError, match="was changed"):
            file.check_unchanged()
        path.unlink()
        with pytest.raises(ModelFileError, match="is gone"):
            file.check_unchanged()


def test_string_array_of_its_own() -> None:
    strings = StringArray.from_strings([b"ab", b"", b"c"])
    assert (list(strings), strings.blob.tobytes(), strings.offsets.tolist()) == ([b"ab", b"", b"c"], b"abc", [0, 2, 2])
    assert list(StringArray.from_strings([])) == []
