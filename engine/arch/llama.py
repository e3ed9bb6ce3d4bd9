"""llama: Llama 1 to 3, SmolLM2, Mistral, Mixtral and everything converted to their form.

Source: arXiv:2302.13971, arXiv:2407.21783, arXiv:2401.04088; GGUF architecture "llama".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.blocks.moe import build_moe_ffn, moe_tensors
from engine.arch.decoder import DenseDecoder
from engine.hparams import read_experts

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class Llama(DenseDecoder):
    """The dense decoder as it is; key and query weights are stored for rotation in pairs."""

    name = "llama"
    rope_kind = "norm"
    type_names = {
        16: "1B",
        22: "1B",
        26: "3B",
        28: "3B",
        30: "256M",
        32: "8B",
        40: "13B",
        48: "34B",
        60: "30B",
        80: "70B",
    }

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_expert, self.n_expert_used = read_experts(gguf)

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The feed-forward, or the router and its experts."""
        if not self.n_expert:
            yield from super().ffn_tensors(il)
            return
        yield from self.norm_tensors(f"blk.{il}.ffn_norm", self.hparams.n_embd)
        yield from moe_tensors(il, self.n_expert, self.hparams.n_embd, self.hparams.n_ff[il])

    def build_ffn(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The gated feed-forward, or the experts'."""
        if not self.n_expert:
            return super().build_ffn(g, cur, il)
        return build_moe_ffn(g, cur, il, n_expert_used=self.n_expert_used)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """Llama 3.1 and later divide frequencies by factors."""
        return "rope_freqs.weight"
