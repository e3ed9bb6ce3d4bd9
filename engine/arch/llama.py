"""llama: Llama 1 to 3, SmolLM2, Mistral, Mixtral and everything converted to their form.

Source: arXiv:2302.13971, arXiv:2407.21783, arXiv:2401.04088; GGUF architecture "llama".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.blocks.moe import build_moe_ffn, moe_tensors
from engine.arch.decoder import DenseDecoder
from engine.hparams import read_experts, read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor

TYPE_NAMES = {16: "1B", 22: "1B", 26: "3B", 28: "3B", 30: "256M", 32: "8B", 40: "13B", 48: "34B", 60: "30B", 80: "70B"}


class Llama(DenseDecoder):
    """The dense decoder as it is; key and query weights are stored for paired rotation (NORM)."""

    name = "llama"

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = read_hparams(gguf, "norm")
        self.n_expert, self.n_expert_used = read_experts(gguf)

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The feed-forward, or the router and its experts."""
        if not self.n_expert:
            yield from super().ffn_tensors(il)
            return
        yield TensorSpec(f"blk.{il}.ffn_norm.weight", (self.hparams.n_embd,))
        yield from moe_tensors(il, self.n_expert, self.hparams.n_embd, self.hparams.n_ff[il])

    def build_ffn_layer(self, g: GraphI, inp: Tensor, il: int) -> Tensor:
        """The gated feed-forward, or the experts'."""
        if not self.n_expert:
            return super().build_ffn_layer(g, inp, il)
        cur = self.build_norm(g, inp, f"blk.{il}.ffn_norm", il)
        return build_moe_ffn(g, cur, il, n_expert_used=self.n_expert_used)

    def tensors(self) -> Iterator[TensorSpec]:
        """The dense decoder's tensors and, in Llama 3.1 and later, the frequency factors."""
        yield from super().tensors()
        yield TensorSpec("rope_freqs.weight", (self.hparams.rope.n_rot // 2,), required=False)

    def type_name(self) -> str:
        """The size label, by the number of layers."""
        return TYPE_NAMES.get(self.hparams.n_layer, "")
