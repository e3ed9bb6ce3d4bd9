"""mistral3: Ministral 3 and Mistral's later dense models.

Source: the models' own files; GGUF architecture "mistral3". Queries sharpen with the position where the file gives a temperature
scale, as in Llama 4.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class Mistral3(DenseDecoder):
    """The dense decoder with YaRN's own corners and magnitude."""

    name = "mistral3"
    rope_kind = "norm"
    type_names = {26: "3B", 34: "8B", 40: "14B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.f_attn_temp_scale = gguf.get_float("mistral3.attention.temperature_scale", 0.0)
        rope = replace(
            self.hparams.rope,
            beta_fast=gguf.get_float("mistral3.rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=gguf.get_float("mistral3.rope.scaling.yarn_beta_slow", 1.0),
        )
        log_multiplier = gguf.get_float("mistral3.rope.scaling.yarn_log_multiplier", 0.0)
        if rope.ext_factor and log_multiplier and rope.freq_scale < 1.0:
            # YaRN's magnitude (1 + 0.1 log factor) is divided by the one over all dims, which is the same here
            rope = replace(
                rope, attn_factor=rope.attn_factor / (1.0 + 0.1 * log_multiplier * -math.log(rope.freq_scale))
            )
        self.hparams = replace(self.hparams, rope=rope)

    def scale_q(self, g: GraphI, q: Tensor, il: int) -> Tensor:
        """Sharper with the position."""
        if not self.f_attn_temp_scale:
            return q
        return ops.scale_pos(q, self.hparams.rope.n_ctx_orig, self.f_attn_temp_scale, 0)
