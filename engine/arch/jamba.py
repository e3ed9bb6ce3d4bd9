"""Jamba: Mamba layers, attention without positions in a few, experts in some. Source: arXiv:2403.19887."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.blocks.ssm import build_mamba_layer, mamba_state, mamba_tensors, read_ssm
from engine.arch.hybrid import HybridDecoder
from engine.arch.moe_decoder import MoEDecoder

if TYPE_CHECKING:
    from engine.arch.base import TensorSpec
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState


class Jamba(HybridDecoder, MoEDecoder):
    """Layers without key heads are Mamba's; those with a router in the file have experts."""

    name = "jamba"
    rope_kind = "none"
    norm_weights = False
    type_names = {28: "3B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.ssm = read_ssm(gguf)
        layers = range(self.hparams.n_layer)
        self.moe_layers = frozenset(il for il in layers if f"blk.{il}.ffn_gate_inp.weight" in gguf.tensors)

    def is_moe(self, il: int) -> bool:
        """Whether a layer has a router."""
        return il in self.moe_layers

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The Mamba layer's."""
        return mamba_tensors(il, self.ssm, self.hparams.n_embd)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The Mamba layer."""
        return build_mamba_layer(g, cur, il, self.ssm, self.hparams.f_norm_rms_eps)

    def layer_state(self, il: int) -> LayerState:
        """What it carries along."""
        return mamba_state(il, self.ssm)
