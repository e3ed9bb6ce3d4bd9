"""The inference engine: from a GGUF file and text to text. These names are its public surface.

A prompt travels: `chat` -> `tokenizer` -> `batch` -> `context` -> `arch` + `graph` -> `memory` -> `backend` -> `cext` ->
`sampling` -> text. `engine.generate` is the loop and the first file to read.
"""

from engine.adapters import ControlVector, LoraAdapter, load_control_vector, load_lora
from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.context.kinds import ContextBase, ContextEnc, ContextKVSelf, create_context
from engine.context.params import ContextParams
from engine.context.vision import ContextVision, load_vision
from engine.gguf import read_tensor
from engine.memory.kv_self import (
    kv_self_can_shift,
    kv_self_clear,
    kv_self_defrag,
    kv_self_n_tokens,
    kv_self_seq_add,
    kv_self_seq_cp,
    kv_self_seq_div,
    kv_self_seq_keep,
    kv_self_seq_pos_max,
    kv_self_seq_pos_min,
    kv_self_seq_rm,
    kv_self_update,
    kv_self_used_cells,
    kv_self_view,
)
from engine.model import Model, load_model

__all__ = [
    "Batch",
    "Context",
    "ContextBase",
    "ContextEnc",
    "ContextKVSelf",
    "ContextParams",
    "ContextVision",
    "ControlVector",
    "DecodeStatus",
    "LoraAdapter",
    "Model",
    "create_context",
    "kv_self_can_shift",
    "kv_self_clear",
    "kv_self_defrag",
    "kv_self_n_tokens",
    "kv_self_seq_add",
    "kv_self_seq_cp",
    "kv_self_seq_div",
    "kv_self_seq_keep",
    "kv_self_seq_pos_max",
    "kv_self_seq_pos_min",
    "kv_self_seq_rm",
    "kv_self_update",
    "kv_self_used_cells",
    "kv_self_view",
    "load_control_vector",
    "load_lora",
    "load_model",
    "load_vision",
    "read_tensor",
]
