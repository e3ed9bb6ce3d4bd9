"""qwen2vl: the language models of Qwen2-VL and Qwen2.5-VL.

Source: arXiv:2409.12191, arXiv:2502.13923; GGUF architecture "qwen2vl". Their towers are `engine.arch.vision.qwen2vl`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.errors import HparamError

if TYPE_CHECKING:
    from engine.gguf import GGUFFile


class Qwen2VL(DenseDecoder):
    """Qwen 2 with heads that turn by time, row and column, section by section (M-RoPE)."""

    name = "qwen2vl"
    has_qkv_bias = True
    type_names = {28: "7B", 36: "3B", 64: "32B", 80: "72B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        key, rope = "qwen2vl.rope.dimension_sections", self.hparams.rope
        sections = tuple(int(n) for n in gguf.get_ints(key))
        if not 3 <= len(sections) <= 4 or min(sections) < 0 or 2 * sum(sections) != rope.n_rot:
            raise HparamError(key, f"{sections} do not share out {rope.n_rot} dimensions", gguf.path)
        self.hparams = replace(self.hparams, rope=replace(rope, sections=sections))

    def type_name(self) -> str:
        """The size label: 2B has as many layers as 7B but is narrower."""
        is_narrow = self.hparams.n_layer == 28 and self.hparams.n_embd < 2048
        return "2B" if is_narrow else super().type_name()
