"""gemma3: the text models of Gemma 3.

Source: arXiv:2503.19786; GGUF architecture "gemma3". The converter stores norm weights with the model's +1 added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.decoder import DenseDecoder
from engine.graph import ops
from engine.graph.tensor import RopeSpec
from engine.hparams import read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor

SWA_PATTERN = 6  # five sliding-window layers, then one that sees everything
TYPE_NAMES = {18: "270M", 26: "1B", 34: "4B", 48: "12B", 62: "27B"}


class Gemma3(DenseDecoder):
    """Norms before and after each part, normed query and key heads, sliding windows in five of six layers."""

    name = "gemma3"
    activation = "gelu"

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = read_hparams(gguf, "neox")
        self.n_swa = gguf.get_int("gemma3.attention.sliding_window", 0, lo=0)
        self.f_logit_softcap = gguf.get_float("gemma3.final_logit_softcapping", 0.0)
        freq_base_swa = gguf.get_float("gemma3.rope.freq_base_swa", 10000.0)
        self.rope_swa = replace(self.hparams.rope, freq_base=freq_base_swa, freq_scale=1.0, ext_factor=0.0)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """Attention with normed heads and a norm after it."""
        hp = self.hparams
        yield from super().attn_tensors(il)
        yield TensorSpec(f"blk.{il}.attn_q_norm.weight", (hp.n_embd_head_k,))
        yield TensorSpec(f"blk.{il}.attn_k_norm.weight", (hp.n_embd_head_k,))
        yield TensorSpec(f"blk.{il}.post_attention_norm.weight", (hp.n_embd,))

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The feed-forward and a norm after it."""
        yield from super().ffn_tensors(il)
        yield TensorSpec(f"blk.{il}.post_ffw_norm.weight", (self.hparams.n_embd,))

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """Token embeddings times sqrt(n_embd); embeddings given as input are taken as they are."""
        inp = g.build_inp("embd")
        if inp.src:
            inp = ops.scale(inp, math.sqrt(self.hparams.n_embd))
        return g.build_cb(inp, "inp_embd")

    def build_qk(self, g: GraphI, q: Tensor, k: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """Normed heads."""
        return (
            self.build_norm(g, q, f"blk.{il}.attn_q_norm", il),
            self.build_norm(g, k, f"blk.{il}.attn_k_norm", il),
        )

    def build_attn_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """The attention with its second norm."""
        return self.build_norm(g, super().build_attn_layer(g, inp, pos, il), f"blk.{il}.post_attention_norm", il)

    def build_ffn_layer(self, g: GraphI, inp: Tensor, il: int) -> Tensor:
        """The feed-forward with its second norm."""
        return self.build_norm(g, super().build_ffn_layer(g, inp, il), f"blk.{il}.post_ffw_norm", il)

    def build_head(self, g: GraphI, inp: Tensor) -> GraphResult:
        """The output head, soft-capped where the file asks for it."""
        result = super().build_head(g, inp)
        if not self.f_logit_softcap or result.logits is None:
            return result
        return g.result(embd=result.embd, logits=ops.softcap(result.logits, self.f_logit_softcap))

    def rope(self, il: int) -> RopeSpec:
        """Sliding-window layers have a base of their own and no stretching."""
        return self.rope_swa if self.is_swa(il) else self.hparams.rope

    def rope_factors(self, il: int) -> str:
        """None: the family does not use them."""
        return ""

    def is_swa(self, il: int) -> bool:
        """Whether a layer looks through the sliding window."""
        return self.n_swa > 0 and il % SWA_PATTERN < SWA_PATTERN - 1

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window."""
        return ("standard", self.n_swa) if self.is_swa(il) else ("none", 0)

    def attn_scale(self) -> float:
        """1 / sqrt(d_k), but for the 27B model, whose query_pre_attn_scalar is n_embd / n_head."""
        hp = self.hparams
        return 1.0 / math.sqrt(hp.n_embd / hp.n_head[0] if self.type_name() == "27B" else hp.n_embd_head_k)

    def type_name(self) -> str:
        """The size label, by the number of layers."""
        return TYPE_NAMES.get(self.hparams.n_layer, "")
