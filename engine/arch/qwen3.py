"""qwen3, qwen3moe and qwen2moe.

Source: arXiv:2505.09388, arXiv:2407.10671; GGUF architectures of these names.
"""

from __future__ import annotations

from engine.arch.decoder import DenseDecoder
from engine.arch.moe_decoder import MoEDecoder


class Qwen3(DenseDecoder):
    """Normed query and key heads, no biases."""

    name = "qwen3"
    qk_norm = "head"
    type_names = {28: "1.7B", 36: "8B", 40: "14B", 64: "32B"}

    def type_name(self) -> str:
        """The size label: 0.6B and 4B have as many layers as larger ones but are narrower."""
        narrow = {(28, 1024): "0.6B", (36, 2560): "4B"}
        return narrow.get((self.hparams.n_layer, self.hparams.n_embd), super().type_name())


class Qwen3MoE(MoEDecoder):
    """Qwen 3 with experts."""

    name = "qwen3moe"
    qk_norm = "head"
    type_names = {48: "30B.A3B", 94: "235B.A22B"}


class Qwen2MoE(MoEDecoder):
    """Qwen 2 with experts whose weights stay as the softmax gave them, and a gated shared expert."""

    name = "qwen2moe"
    has_qkv_bias = True
    norm_weights = False
    has_shared = True
    type_names = {24: "A2.7B", 28: "57B.A14B"}
