"""Families that are the decoder with experts and little else: dots1, ernie4_5-moe, minimax-m2.

Source: arXiv:2506.05767, arXiv:2501.08313 and the models' own files; GGUF architectures of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.moe_decoder import MoEDecoder

if TYPE_CHECKING:
    from engine.gguf import GGUFFile


class Dots1(MoEDecoder):
    """Normed heads; sigmoid-routed experts with shared ones."""

    name = "dots1"
    qk_norm = "head"
    gating = "sigmoid"
    has_shared = True
    type_names = {62: "142B"}


class Ernie45MoE(MoEDecoder):
    """Experts in every so many layers, with shared ones."""

    name = "ernie4_5-moe"
    rope_kind = "norm"
    has_shared = True
    type_names = {28: "21B.A3B", 54: "300B.A47B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.moe_step = gguf.get_int("ernie4_5-moe.interleave_moe_layer_step", 1, lo=1)

    def is_moe(self, il: int) -> bool:
        """Every moe_step-th layer behind the dense ones."""
        return super().is_moe(il) and (il + 1) % self.moe_step == 0


class MiniMaxM2(MoEDecoder):
    """q and k normed whole; sigmoid-routed experts."""

    name = "minimax-m2"
    qk_norm = "whole"
    gating = "sigmoid"
    type_names = {62: "230B.A10B"}
