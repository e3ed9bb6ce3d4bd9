"""GGUF files built byte by byte, with the place of every field remembered, so that a test can break any one of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from engine.gguf import ValueType
from engine.types import QuantType


@dataclass
class Crafted:
    """Bytes of a file in the making.

    Attributes:
        data: what is there so far.
        fields: name -> (offset, struct format) of each number.
    """

    data: bytearray = field(default_factory=bytearray)
    fields: dict[str, tuple[int, str]] = field(default_factory=dict)

    def number(self, name: str, form: str, value: int | float) -> None:
        self.fields[name] = (len(self.data), form)
        self.data += struct.pack(form, value)

    def string(self, name: str, text: bytes) -> None:
        self.number(f"{name}.length", "<Q", len(text))
        self.data += text

    def key_value(self, key: str, value_type: ValueType, form: str, value: int | float) -> None:
        self.string(key, key.encode())
        self.number(f"{key}.type", "<I", value_type)
        self.number(f"{key}.value", form, value)

    def key_string(self, key: str, text: bytes) -> None:
        self.string(key, key.encode())
        self.number(f"{key}.type", "<I", ValueType.STRING)
        self.string(f"{key}.value", text)

    def key_array(self, key: str, value_type: ValueType, n_items: int) -> None:
        self.string(key, key.encode())
        self.number(f"{key}.type", "<I", ValueType.ARRAY)
        self.number(f"{key}.item_type", "<I", value_type)
        self.number(f"{key}.n_items", "<Q", n_items)

    def tensor(self, name: str, quant_type: int, ne: tuple[int, ...], offset: int) -> None:
        self.string(name, name.encode())
        self.number(f"{name}.n_dims", "<I", len(ne))
        for i, n in enumerate(ne):
            self.number(f"{name}.ne{i}", "<Q", n)
        self.number(f"{name}.type", "<I", quant_type)
        self.number(f"{name}.offset", "<Q", offset)

    def set(self, name: str, value: int | float) -> bytes:
        """A copy with one field changed."""
        at, form = self.fields[name]
        changed = bytearray(self.data)
        struct.pack_into(form, changed, at, value)
        return bytes(changed)


def start(version: int = 3, n_tensors: int = 0, n_kv: int = 0) -> Crafted:
    """Magic, version and counts."""
    crafted = Crafted(bytearray(b"GGUF"))
    crafted.number("version", "<I", version)
    crafted.number("tensor_count", "<Q", n_tensors)
    crafted.number("kv_count", "<Q", n_kv)
    return crafted


def tiny_model() -> Crafted:
    """A valid file with a value of every kind and three tensors."""
    crafted = start(n_tensors=3, n_kv=8)
    crafted.key_string("general.architecture", b"llama")
    crafted.key_value("general.alignment", ValueType.UINT32, "<I", 32)
    crafted.key_value("llama.block_count", ValueType.UINT32, "<I", 2)
    crafted.key_value("llama.rope.freq_base", ValueType.FLOAT32, "<f", 10000.0)
    crafted.key_value("tokenizer.ggml.add_bos_token", ValueType.BOOL, "<B", 1)
    crafted.key_array("tokenizer.ggml.tokens", ValueType.STRING, 3)
    for i, text in enumerate((b"a", b"", b"\xff\xfe")):
        crafted.string(f"token{i}", text)
    crafted.key_array("tokenizer.ggml.scores", ValueType.FLOAT32, 3)
    for i in range(3):
        crafted.number(f"score{i}", "<f", -float(i))
    crafted.key_array("llama.flags", ValueType.BOOL, 2)
    crafted.data += b"\x01\x00"
    crafted.tensor("token_embd.weight", QuantType.F32, (8, 3), 0)
    crafted.tensor("blk.0.attn_q.weight", QuantType.Q4_0, (32, 2), 96)
    crafted.tensor("output_norm.weight", QuantType.F32, (8,), 160)
    crafted.data += bytes(-len(crafted.data) % 32)
    crafted.fields["data"] = (len(crafted.data), "<B")
    crafted.data += bytes(range(192))
    return crafted
