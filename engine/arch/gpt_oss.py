"""gpt-oss: OpenAI's open models.

Source: arXiv:2508.10925; GGUF architecture "gpt-oss".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.moe_decoder import MoEDecoder

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class GptOss(MoEDecoder):
    """Attention sinks, a window in every other layer, experts with biases and a gate of their own."""

    name = "gpt-oss"
    has_qkv_bias = True
    activation = "oai"
    gating = "softmax_weight"
    norm_weights = False
    ffn_norm = "post_attention_norm"
    type_names = {24: "20B", 36: "120B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_swa = gguf.get_int("gpt-oss.attention.sliding_window", 0, lo=0)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The attention's and its sinks."""
        yield from super().attn_tensors(il)
        yield TensorSpec(f"blk.{il}.attn_sinks.weight", (self.hparams.n_head[il],))

    def sinks(self, g: GraphI, il: int) -> Tensor | None:
        """One logit a head that takes attention but has no value."""
        return g.weight(f"blk.{il}.attn_sinks.weight")

    def swa(self, il: int) -> tuple[str, int]:
        """Every other layer looks through the window."""
        return ("standard", self.n_swa) if self.n_swa and il % 2 == 0 else ("none", 0)
