"""The inference engine: from a GGUF file and text to text. These names are its public surface.

A prompt travels: `chat` -> `tokenizer` -> `batch` -> `context` -> `arch` + `graph` -> `memory` -> `backend` -> `cext` ->
`sampling` -> text. `engine.generate` is the loop and the first file to read.
"""

from cext.threadpool import ThreadPool
from engine.adapters import ControlVector, LoraAdapter, load_control_vector, load_lora
from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.context.encdec import ContextDec, ContextEnc, ContextEncDec
from engine.context.kinds import (
    ContextBase,
    ContextHybrid,
    ContextKVSelf,
    ContextKVSelfMLA,
    ContextRecurrent,
    create_context,
)
from engine.context.params import ContextParams
from engine.context.vision import ContextVision, load_vision
from engine.gguf import read_tensor
from engine.memory.kv_cache_names import (
    kv_cache_can_shift,
    kv_cache_clear,
    kv_cache_defrag,
    kv_cache_n_tokens,
    kv_cache_seq_add,
    kv_cache_seq_cp,
    kv_cache_seq_div,
    kv_cache_seq_keep,
    kv_cache_seq_pos_max,
    kv_cache_seq_rm,
    kv_cache_update,
    kv_cache_used_cells,
)
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
from engine.memory.kv_view import KVCacheView
from engine.model import Model, load_model
from engine.perf import PerfData
from engine.vision_model import VisionModel

__all__ = [
    "Batch",
    "Context",
    "ContextBase",
    "ContextDec",
    "ContextEnc",
    "ContextEncDec",
    "ContextHybrid",
    "ContextKVSelf",
    "ContextKVSelfMLA",
    "ContextParams",
    "ContextRecurrent",
    "ContextVision",
    "ControlVector",
    "DecodeStatus",
    "KVCacheView",
    "LoraAdapter",
    "Model",
    "PerfData",
    "ThreadPool",
    "VisionModel",
    "create_context",
    "kv_cache_can_shift",
    "kv_cache_clear",
    "kv_cache_defrag",
    "kv_cache_n_tokens",
    "kv_cache_seq_add",
    "kv_cache_seq_cp",
    "kv_cache_seq_div",
    "kv_cache_seq_keep",
    "kv_cache_seq_pos_max",
    "kv_cache_seq_rm",
    "kv_cache_update",
    "kv_cache_used_cells",
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
