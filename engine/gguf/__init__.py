"""GGUF model files: opened and checked, read as numbers, written.

The first station of the pipeline: `reader` joins the parts of a model, `header` checks each one, `mapped` holds its
bytes; `quants` turns blocks into floats.
"""

from engine.gguf.header import TensorInfo
from engine.gguf.quants import block_size, dequantize
from engine.gguf.reader import GGUFFile, open_gguf, read_tensor
from engine.gguf.values import GGUFValue, StringArray, ValueType
from engine.gguf.writer import GGUFWriter

__all__ = [
    "GGUFFile",
    "GGUFValue",
    "GGUFWriter",
    "StringArray",
    "TensorInfo",
    "ValueType",
    "block_size",
    "dequantize",
    "open_gguf",
    "read_tensor",
]
