"""granite and granitemoe: IBM's Granite 3.

Source: arXiv:2408.13359 (the multipliers); GGUF architectures of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class GraniteScales(DenseDecoder):
    """Multipliers on embeddings, residuals, scores and logits."""

    rope_kind = "norm"

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        arch = gguf.architecture
        self.f_embedding_scale = gguf.get_float(f"{arch}.embedding_scale", 1.0)
        self.f_residual_scale = gguf.get_float(f"{arch}.residual_scale", 1.0)
        self.f_attn_scale = gguf.get_float(f"{arch}.attention.scale", 0.0)
        self.f_logit_scale = gguf.get_float(f"{arch}.logit_scale", 1.0)
        if self.f_logit_scale == 0.0:
            raise HparamError(f"{arch}.logit_scale", "is zero", gguf.path)

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """Embeddings times their multiplier."""
        return g.build_cb(ops.scale(super().build_inp_embd(g), self.f_embedding_scale or 1.0), "inp_scaled")

    def scale_residual(self, cur: Tensor) -> Tensor:
        """A part's output times its multiplier."""
        return ops.scale(cur, self.f_residual_scale or 1.0)

    def scale_logits(self, logits: Tensor) -> Tensor:
        """Logits divided by their multiplier."""
        return ops.scale(logits, 1.0 / self.f_logit_scale)

    def attn_scale(self) -> float:
        """The file's factor."""
        return self.f_attn_scale or super().attn_scale()


class Granite(GraniteScales):
    """The dense models."""

    name = "granite"
    type_names = {32: "3B", 40: "2B"}


class GraniteMoE(GraniteScales, MoEDecoder):
    """The models with experts."""

    name = "granitemoe"
    has_shared = True
    type_names = {24: "1B", 32: "3B"}
