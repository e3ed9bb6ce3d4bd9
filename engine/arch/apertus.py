"""apertus: the Swiss AI initiative's models.

Source: arXiv:2509.14233; GGUF architecture "apertus".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


class Apertus(DenseDecoder):
    """Normed heads; a feed-forward without a gate whose activation has parameters of each layer."""

    name = "apertus"
    qk_norm = "head"
    gated = False
    type_names = {32: "8B", 80: "70B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        keys = [f"xielu.{part}" for part in ("alpha_n", "alpha_p", "beta", "eps")]
        for key in keys:
            if len(gguf.get_floats(key)) < self.hparams.n_layer:
                raise HparamError(key, f"has fewer than {self.hparams.n_layer} values", gguf.path)
        self.xielu = [[float(v) for v in gguf.get_floats(key)] for key in keys]

    def build_mlp(self, g: GraphI, cur: Tensor, blk: str, il: int, suffix: str = "") -> Tensor:
        """Up, xIELU, down."""
        alpha_n, alpha_p, beta, eps = (values[il] for values in self.xielu)
        up = self.build_mm(g, f"{blk}.ffn_up{suffix}", cur)
        hidden = ops.xielu(up, beta + _softplus(alpha_n), _softplus(alpha_p), beta, eps)
        return self.build_mm(g, f"{blk}.ffn_down{suffix}", hidden)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """Frequency factors, as in Llama 3."""
        return "rope_freqs.weight"
