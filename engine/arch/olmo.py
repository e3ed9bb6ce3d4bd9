"""olmo, olmo2 and olmoe.

Source: arXiv:2402.00838, arXiv:2501.00656, arXiv:2409.02060; GGUF architectures of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.tensor import Tensor


class Olmo(DenseDecoder):
    """Layer norms without weights; q, k and v limited."""

    name = "olmo"
    rope_kind = "norm"
    norm = "layer"
    norms_have_weights = False
    type_names = {22: "1B", 32: "7B", 80: "70B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.f_clamp_kqv = gguf.get_float("olmo.attention.clamp_kqv", 0.0)

    def limit_qkv(self, cur: Tensor) -> Tensor:
        """Limited where the file says so."""
        return ops.clamp(cur, self.f_clamp_kqv) if self.f_clamp_kqv > 0 else cur


class Olmo2(DenseDecoder):
    """Norms after each part instead of before it; q and k normed whole."""

    name = "olmo2"
    attn_norm = ""
    ffn_norm = ""
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"
    qk_norm = "whole"
    type_names = {16: "1B", 32: "7B", 40: "13B", 64: "32B"}


class OlmoE(MoEDecoder):
    """Experts whose weights stay as the softmax gave them; q and k normed whole."""

    name = "olmoe"
    qk_norm = "whole"
    norm_weights = False
    type_names = {16: "A1.7B"}
