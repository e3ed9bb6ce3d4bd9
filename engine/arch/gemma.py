"""gemma and gemma2, and what gemma3 shares with them.

Source: arXiv:2403.08295, arXiv:2408.00118; GGUF architectures "gemma", "gemma2". The converter stores norm weights with the
model's +1 added.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from engine.arch.decoder import DenseDecoder
from engine.graph import ops
from engine.graph.tensor import AttnSpec

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class Gemma(DenseDecoder):
    """Embeddings times sqrt(n_embd), a GELU gate, the embedding matrix as the head."""

    name = "gemma"
    activation = "gelu"
    type_names: ClassVar[dict[int, str]] = {18: "2B", 28: "7B"}

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """Token embeddings times sqrt(n_embd); embeddings given as input are taken as they are."""
        inp = g.build_inp("embd")
        if inp.src:
            inp = ops.scale(inp, math.sqrt(self.hparams.n_embd))
        return g.build_cb(inp, "inp_embd")


class Gemma2(Gemma):
    """Norms after each part too, soft caps, a sliding window in every other layer."""

    name = "gemma2"
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"
    swa_pattern: ClassVar[int] = 2
    """Of so many layers the last sees everything."""
    largest: ClassVar[str] = "27B"
    """The size whose query scale is 1 / sqrt(n_embd / n_head). Source: the models' query_pre_attn_scalar."""
    type_names: ClassVar[dict[int, str]] = {26: "2B", 42: "9B", 46: "27B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_swa = gguf.get_int(f"{self.name}.attention.sliding_window", 0, lo=0)
        self.f_attn_softcap = gguf.get_float(f"{self.name}.attn_logit_softcapping", 0.0)
        self.f_logit_softcap = gguf.get_float(f"{self.name}.final_logit_softcapping", 0.0)

    def scale_logits(self, logits: Tensor) -> Tensor:
        """Soft-capped where the file asks for it."""
        return ops.softcap(logits, self.f_logit_softcap) if self.f_logit_softcap else logits

    def is_swa(self, il: int) -> bool:
        """Whether a layer looks through the sliding window."""
        return self.n_swa > 0 and il % self.swa_pattern < self.swa_pattern - 1

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window."""
        return ("standard", self.n_swa) if self.is_swa(il) else ("none", 0)

    def attn_scale(self) -> float:
        """1 / sqrt(d_k), but for the largest model."""
        hp = self.hparams
        return 1.0 / math.sqrt(hp.n_embd / hp.n_head[0] if self.type_name() == self.largest else hp.n_embd_head_k)

    def attn_spec(self, il: int) -> AttnSpec:
        """Scores are soft-capped."""
        return replace(super().attn_spec(il), softcap=self.f_attn_softcap)
