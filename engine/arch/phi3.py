"""phi3: Phi 3, 3.5 and 4.

Source: arXiv:2404.14219; GGUF architecture "phi3". Long contexts have frequency factors of their own (LongRoPE,
arXiv:2402.13753), chosen by the context's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.decoder import DenseDecoder

if TYPE_CHECKING:
    from engine.gguf import GGUFFile


class Phi3(DenseDecoder):
    """q, k and v in one matrix, gate and up in another."""

    name = "phi3"
    fused_qkv = True
    fused_gate_up = True
    type_names = {24: "1.3B", 32: "3B", 40: "14B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_swa = gguf.get_int("phi3.attention.sliding_window", 0, lo=0)

    def tensors(self) -> Iterator[TensorSpec]:
        """The decoder's tensors and the factors of both lengths."""
        yield from super().tensors()
        yield TensorSpec("rope_factors_short.weight", (self.hparams.rope.n_rot // 2,), required=False)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """The long factors beyond the original context."""
        is_short = 0 < n_ctx <= self.hparams.rope.n_ctx_orig
        return "rope_factors_short.weight" if is_short else "rope_factors_long.weight"
