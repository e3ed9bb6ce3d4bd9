"""The inference engine: from a GGUF file and text to text. These names are its public surface.

A prompt travels: `chat` -> `tokenizer` -> `batch` -> `context` -> `arch` + `graph` -> `memory` -> `backend` -> `cext` ->
`sampling` -> text. `engine.generate` is the loop and the first file to read.
"""

from engine.adapters import ControlVector, LoraAdapter, load_control_vector, load_lora
from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.context.kinds import ContextBase, ContextEnc, ContextKVSelf, create_context
from engine.context.params import ContextParams
from engine.gguf import read_tensor
from engine.model import Model, load_model

__all__ = [
    "Batch",
    "Context",
    "ContextBase",
    "ContextEnc",
    "ContextKVSelf",
    "ContextParams",
    "ControlVector",
    "DecodeStatus",
    "LoraAdapter",
    "Model",
    "create_context",
    "load_control_vector",
    "load_lora",
    "load_model",
    "read_tensor",
]
