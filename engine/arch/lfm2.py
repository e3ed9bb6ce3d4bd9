"""LFM2: short convolutions in most layers, attention in some; dense or with experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.blocks.short_conv import build_short_conv, short_conv_tensors
from engine.arch.hybrid import HybridDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.memory.base import LayerState

if TYPE_CHECKING:
    from engine.arch.base import TensorSpec
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class Lfm2(HybridDecoder):
    """Layers without key heads are short convolutions; the final norm has the embeddings' name."""

    name = "lfm2"
    output_norm = "token_embd_norm"
    qk_norm = "head"
    type_names = {10: "350M", 14: "230M", 16: "1.2B", 30: "2.6B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_conv = gguf.get_int(f"{gguf.architecture}.shortconv.l_cache", lo=2, hi=64)

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The short convolution's."""
        return short_conv_tensors(il, self.n_conv, self.hparams.n_embd)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The short convolution."""
        return build_short_conv(g, cur, il)

    def layer_state(self, il: int) -> LayerState:
        """The convolution's last inputs."""
        return LayerState(il, (self.n_conv - 1) * self.hparams.n_embd, 0)


class Lfm2MoE(Lfm2, MoEDecoder):
    """With experts behind the first layers."""

    name = "lfm2moe"
    gating = "sigmoid"
    type_names = {24: "8B.A1B"}
