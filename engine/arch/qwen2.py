"""qwen2: Qwen 1.5, 2, 2.5 and their coder and maths variants.

Source: arXiv:2407.10671; GGUF architecture "qwen2".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.hparams import read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile

TYPE_NAMES = {24: "0.5B", 28: "1.5B", 32: "7B", 36: "3B", 40: "13B", 48: "14B", 64: "32B", 80: "70B"}


class Qwen2(DenseDecoder):
    """The dense decoder with biases on q, k and v, and rotation of halves (NEOX)."""

    name = "qwen2"
    has_qkv_bias = True

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = read_hparams(gguf, "neox")

    def rope_factors(self, il: int) -> str:
        """None: the family does not use them."""
        return ""

    def type_name(self) -> str:
        """The size label, by the number of layers."""
        return TYPE_NAMES.get(self.hparams.n_layer, "")
