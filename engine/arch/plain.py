"""Families that are the dense decoder with other traits and nothing else.

arcee (AFM), nemotron (arXiv:2402.16819), seed_oss, starcoder2 (arXiv:2402.19173), ernie4_5, exaone4 (arXiv:2507.11407),
hunyuan-dense; GGUF architectures of these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.arch.decoder import DenseDecoder

if TYPE_CHECKING:
    from engine.gguf import GGUFFile


class Arcee(DenseDecoder):
    """A feed-forward without a gate: squared ReLU."""

    name = "arcee"
    rope_kind = "norm"
    activation = "relu_sqr"
    gated = False
    type_names = {36: "4B"}

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """Files may have frequency factors, as in Llama 3."""
        return "rope_freqs.weight"


class Nemotron(DenseDecoder):
    """Layer norms, squared ReLU."""

    name = "nemotron"
    norm = "layer"
    activation = "relu_sqr"
    gated = False
    type_names = {32: "4B"}


class SeedOss(DenseDecoder):
    """Biases on q, k and v; the second norm has another name."""

    name = "seed_oss"
    has_qkv_bias = True
    ffn_norm = "post_attention_norm"
    type_names = {64: "36B"}


class StarCoder2(DenseDecoder):
    """Layer norms, biases everywhere, GELU without a gate."""

    name = "starcoder2"
    norm = "layer"
    activation = "gelu"
    gated = False
    type_names = {30: "3B", 32: "7B", 40: "15B"}


class Ernie45(DenseDecoder):
    """The dense decoder as it is."""

    name = "ernie4_5"
    rope_kind = "norm"
    type_names = {18: "0.3B"}


class Exaone4(DenseDecoder):
    """Norms after each part, normed heads; in the largest model three of four layers look through a window and only
    those are rotated.
    """

    name = "exaone4"
    attn_norm = ""
    ffn_norm = ""
    attn_post_norm = "post_attention_norm"
    ffn_post_norm = "post_ffw_norm"
    qk_norm = "head"
    swa_pattern = 4
    n_layer_with_swa = 64
    type_names = {30: "1.2B", 64: "32B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        n_swa = gguf.get_int("exaone4.attention.sliding_window", 0, lo=0)
        self.n_swa = n_swa if self.hparams.n_layer == self.n_layer_with_swa else 0

    def is_swa(self, il: int) -> bool:
        """Whether a layer looks through the sliding window."""
        return self.n_swa > 0 and il % self.swa_pattern < self.swa_pattern - 1

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window."""
        return ("standard", self.n_swa) if self.is_swa(il) else ("none", 0)

    def uses_rope(self, il: int) -> bool:
        """Everywhere without windows, else only through them."""
        return not self.n_swa or self.is_swa(il)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """Files may have frequency factors, as in Llama 3."""
        return "rope_freqs.weight"


class HunyuanDense(DenseDecoder):
    """Heads normed after their rotation."""

    name = "hunyuan-dense"
    qk_norm = "rotated"
    type_names = {24: "0.5B", 32: "7B"}


class SmolLM3(DenseDecoder):
    """Every fourth layer is not rotated. Source: arXiv:2501.18795 (NoPE layers)."""

    name = "smollm3"
    rope_kind = "norm"
    n_no_rope_layer_step = 4
    type_names = {36: "3B"}

    def uses_rope(self, il: int) -> bool:
        """Not in every fourth layer."""
        return (il + 1) % self.n_no_rope_layer_step != 0
