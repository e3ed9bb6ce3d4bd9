"""A model of random weights made on the spot, for what no model under tests/data has."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from engine.gguf import GGUFWriter
from engine.types import QuantType

CRAFTED_PHI3 = "crafted-phi3"
"""Heads of 32, so that every cache type fits, half of them rotated, by other frequencies in long contexts than in short."""

N_CTX_ORIG = 512
_N_EMBD, _N_FF, _N_VOCAB, _N_LAYER = 64, 64, 256, 2
_N_HEAD, _N_HEAD_KV, _D_HEAD, _N_ROT = 2, 1, 32, 16


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="causerie-crafted-")


@cache
def crafted_phi3() -> Path:
    """The file; it goes when the process ends."""
    path = Path(_folder().name, "phi3.gguf")
    writer = GGUFWriter(path, "phi3")
    for key, value in {
        "block_count": _N_LAYER, "context_length": 2048, "embedding_length": _N_EMBD, "feed_forward_length": _N_FF,
        "attention.head_count": _N_HEAD, "attention.head_count_kv": _N_HEAD_KV, "rope.dimension_count": _N_ROT,
        "rope.scaling.original_context_length": N_CTX_ORIG, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0, "rope.scaling.attn_factor": 1.1,
    }.items():  # fmt: skip
        writer.add(f"phi3.{key}", value)
    rng = np.random.default_rng(11)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (_N_VOCAB, _N_EMBD),
        "output": (_N_VOCAB, _N_EMBD),
        "output_norm": (_N_EMBD,),
        "rope_factors_long": (_N_ROT // 2,),
        "rope_factors_short": (_N_ROT // 2,),
    }
    for il in range(_N_LAYER):
        shapes |= {
            f"blk.{il}.attn_norm": (_N_EMBD,),
            f"blk.{il}.attn_qkv": ((_N_HEAD + 2 * _N_HEAD_KV) * _D_HEAD, _N_EMBD),
            f"blk.{il}.attn_output": (_N_EMBD, _N_HEAD * _D_HEAD),
            f"blk.{il}.ffn_norm": (_N_EMBD,),
            f"blk.{il}.ffn_up": (2 * _N_FF, _N_EMBD),
            f"blk.{il}.ffn_down": (_N_EMBD, _N_FF),
        }
    for name, shape in shapes.items():
        values = rng.normal(0, shape[-1] ** -0.5, shape) if len(shape) == 2 else rng.uniform(0.8, 1.5, shape)
        writer.add_tensor(f"{name}.weight", QuantType.F32, values.astype(np.float32), shape)
    writer.write()
    return path
