"""Families whose attention and feed-forward read the same input: phi2, gptneox, falcon, command-r, cohere2, stablelm.

Source: arXiv:2204.06745 (parallel layers), arXiv:2311.16867, and the models' own files; GGUF architectures of these names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.decoder import DenseDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import AttnSpec, Tensor


class Phi2(DenseDecoder):
    """Layer norms, GELU without a gate, biases everywhere."""

    name = "phi2"
    norm = "layer"
    activation = "gelu"
    gated = False
    is_parallel = True
    ffn_norm = ""
    type_names = {24: "1B", 32: "3B"}


class GptNeoX(DenseDecoder):
    """One matrix for q, k and v; each part has its own norm of the same input, unless the file says otherwise."""

    name = "gptneox"
    norm = "layer"
    activation = "gelu_erf"
    gated = False
    fused_qkv = True
    type_names = {6: "70M", 12: "160M", 16: "1B", 24: "410M", 32: "2.8B", 36: "12B", 44: "20B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.is_parallel = gguf.get_bool("gptneox.use_parallel_residual", True)


class Falcon(DenseDecoder):
    """One matrix for q, k and v; the larger models norm the attention's input once more on its own."""

    name = "falcon"
    norm = "layer"
    activation = "gelu_erf"
    gated = False
    fused_qkv = True
    is_parallel = True
    ffn_norm = ""
    type_names = {32: "7B", 60: "40B"}

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The attention's, and the second norm of the larger models."""
        yield from super().attn_tensors(il)
        n_embd = self.hparams.n_embd
        yield TensorSpec(f"blk.{il}.attn_norm_2.weight", (n_embd,), required=False)
        yield TensorSpec(f"blk.{il}.attn_norm_2.bias", (n_embd,), required=False)

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """The feed-forward reads attn_norm, the attention attn_norm_2 where there is one."""
        normed = self.build_norm(g, inp, f"blk.{il}.attn_norm", il)
        attn_in = normed
        if g.weight_or_none(f"blk.{il}.attn_norm_2.weight") is not None:
            attn_in = self.build_norm(g, inp, f"blk.{il}.attn_norm_2", il)
        cur = self.build_self_attn(g, attn_in, pos, il)
        if il == self.hparams.n_layer - 1:
            cur, inp, normed = g.build_out(cur), g.build_out(inp), g.build_out(normed)
        ffn = g.build_cb(self.build_ffn(g, normed, il), "ffn_out", il)
        return g.build_cb(g.build_cvec(ops.add(ops.add(cur, ffn), inp), il), "l_out", il)


class CommandR(DenseDecoder):
    """Layer norms without biases, a gate, logits times a factor."""

    name = "command-r"
    rope_kind = "norm"
    norm = "layer"
    is_parallel = True
    ffn_norm = ""
    type_names = {40: "35B", 64: "104B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.f_logit_scale = gguf.get_float(f"{self.name}.logit_scale", 1.0)

    def scale_logits(self, logits: Tensor) -> Tensor:
        """Logits times the file's factor."""
        return ops.scale(logits, self.f_logit_scale or 1.0)


class Cohere2(CommandR):
    """Three of four layers look through a window and only those are rotated."""

    name = "cohere2"
    swa_pattern = 4
    type_names = {32: "8B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_swa = gguf.get_int("cohere2.attention.sliding_window", 0, lo=0)

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window."""
        return ("standard", self.n_swa) if self.uses_rope(il) and self.n_swa else ("none", 0)

    def uses_rope(self, il: int) -> bool:
        """Only through windows."""
        return il % self.swa_pattern < self.swa_pattern - 1


class StableLM(DenseDecoder):
    """Layer norms with biases, a gate; parallel where the file has no second norm."""

    name = "stablelm"
    norm = "layer"
    type_names = {24: "1B", 32: "3B", 40: "12B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        if "blk.0.ffn_norm.weight" not in gguf.tensors:
            self.is_parallel, self.ffn_norm = True, ""


class Mpt(DenseDecoder):
    """ALiBi instead of rotation; one matrix for q, k and v; GELU without a gate. Source: arXiv:2108.12409."""

    name = "mpt"
    rope_kind = "none"
    norm = "layer"
    activation = "gelu_erf"
    gated = False
    fused_qkv = True
    type_names = {32: "7B", 48: "30B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.f_max_alibi_bias = gguf.get_float("mpt.attention.max_alibi_bias", 8.0)
        self.f_clamp_kqv = gguf.get_float("mpt.attention.clamp_kqv", 0.0)

    def limit_qkv(self, cur: Tensor) -> Tensor:
        """Limited where the file says so."""
        return ops.clamp(cur, self.f_clamp_kqv) if self.f_clamp_kqv > 0 else cur

    def attn_spec(self, il: int) -> AttnSpec:
        """Scores fall with distance."""
        return replace(super().attn_spec(il), max_alibi_bias=self.f_max_alibi_bias)


class Bloom(DenseDecoder):
    """ALiBi, normed embeddings, biases everywhere. Source: arXiv:2211.05100."""

    name = "bloom"
    rope_kind = "none"
    norm = "layer"
    activation = "gelu"
    gated = False
    fused_qkv = True
    has_embd_norm = True
    type_names = {24: "1B", 30: "3B"}

    def attn_spec(self, il: int) -> AttnSpec:
        """Scores fall with distance."""
        return replace(super().attn_spec(il), max_alibi_bias=8.0)


class Gpt2(DenseDecoder):
    """Learned positions, biases everywhere, GELU without a gate. Source: Radford et al. 2019."""

    name = "gpt2"
    rope_kind = "none"
    norm = "layer"
    activation = "gelu"
    gated = False
    fused_qkv = True
    has_position_embd = True
    type_names = {12: "0.1B", 24: "0.4B", 36: "0.8B", 48: "1.5B"}


class StarCoder(Gpt2):
    """GPT-2 with one key and value head. Source: arXiv:2305.06161."""

    name = "starcoder"
    type_names = {24: "1B", 36: "3B", 42: "7B", 40: "15B"}
