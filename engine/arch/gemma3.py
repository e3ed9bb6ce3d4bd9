"""gemma3: the text models of Gemma 3, and gemma-embedding, the encoder made of them.

Source: arXiv:2503.19786, arXiv:2509.20354; GGUF architectures of these names.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.gemma import Gemma2

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import RopeSpec, Tensor


class Gemma3(Gemma2):
    """Gemma 2 with normed query and key heads and a sliding window in five of six layers, which rotate faster."""

    name = "gemma3"
    qk_norm = "head"
    swa_pattern = 6
    type_names = {18: "270M", 26: "1B", 34: "4B", 48: "12B", 62: "27B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        freq_base_swa = gguf.get_float(f"{self.name}.rope.freq_base_swa", 10000.0)
        self.rope_swa = replace(self.hparams.rope, freq_base=freq_base_swa, freq_scale=1.0, ext_factor=0.0)

    def rope(self, il: int) -> RopeSpec:
        """Sliding-window layers have a base of their own and no stretching."""
        return self.rope_swa if self.is_swa(il) else self.hparams.rope


class GemmaEmbedding(Gemma3):
    """Tokens see each other in both directions; windows reach to both sides. The hidden rows are the result."""

    name = "gemma-embedding"
    is_encoder = True
    type_names = {24: "0.3B"}

    def swa(self, il: int) -> tuple[str, int]:
        """Half of the window to each side."""
        return ("symmetric", self.n_swa) if self.is_swa(il) else ("none", 0)

    def build_head(self, g: GraphI, inp: Tensor) -> GraphResult:
        """The normed hidden rows."""
        return g.result(embd=g.build_cb(self.build_norm(g, inp, "output_norm", -1), "result_embd"))
