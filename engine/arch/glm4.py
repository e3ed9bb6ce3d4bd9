"""glm4 and glm4moe: GLM 4, 4.5 and 4.6.

Source: arXiv:2406.12793, arXiv:2508.06471; GGUF architectures of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.arch.moe_decoder import MoEDecoder

if TYPE_CHECKING:
    from engine.gguf import GGUFFile


class Glm4(DenseDecoder):
    """Norms before and after each part; gate and up in one matrix."""

    name = "glm4"
    rope_kind = "norm"
    fused_gate_up = True
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"
    type_names = {40: "9B", 61: "32B"}


class Glm4MoE(MoEDecoder):
    """Dense layers first, then sigmoid-routed experts with a shared one."""

    name = "glm4moe"
    has_shared = True
    gating = "sigmoid"
    ffn_norm = "post_attention_norm"
    type_names = {46: "106B.A12B", 92: "355B.A32B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        if "blk.0.attn_q_norm.weight" in gguf.tensors:
            self.qk_norm = "head"
