"""Families with multi-head latent attention: deepseek2 (DeepSeek V2, V3, R1, Kimi K2) and minicpm3.

Source: arXiv:2405.04434, arXiv:2412.19437, arXiv:2404.06395; GGUF architectures of these names. Rotated values come first in every
head, so that a shift rotates the leading n_rot dims as everywhere else; a score does not depend on the order of its terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.base import LayerMemory, TensorSpec
from engine.arch.decoder import DenseDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor


class LatentAttention(DenseDecoder):
    """Queries and keys from low-rank projections; the rotated part of the key is shared by all heads.

    Attributes:
        d_nope, d_rope, d_v: dims of a head that are not rotated, that are, and of its value.
        n_lora_q, n_lora_kv: ranks; n_lora_q 0: queries come from one matrix.
    """

    d_nope: int
    d_v: int
    n_lora_q: int
    n_lora_kv: int

    @property
    def d_rope(self) -> int:
        """Rotated dims of a head."""
        return self.hparams.rope.n_rot

    def query_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The query projections and the latent's."""
        hp, blk = self.hparams, f"blk.{il}"
        n_q = hp.n_head[il] * (self.d_nope + self.d_rope)
        yield from self.norm_tensors(f"{blk}.attn_norm", hp.n_embd)
        if self.n_lora_q:
            yield TensorSpec(f"{blk}.attn_q_a.weight", (self.n_lora_q, hp.n_embd))
            yield TensorSpec(f"{blk}.attn_q_a_norm.weight", (self.n_lora_q,))
            yield TensorSpec(f"{blk}.attn_q_b.weight", (n_q, self.n_lora_q))
        else:
            yield TensorSpec(f"{blk}.attn_q.weight", (n_q, hp.n_embd))
        yield TensorSpec(f"{blk}.attn_kv_a_mqa.weight", (self.n_lora_kv + self.d_rope, hp.n_embd))
        yield TensorSpec(f"{blk}.attn_kv_a_norm.weight", (self.n_lora_kv,))
        yield TensorSpec(f"{blk}.attn_output.weight", (hp.n_embd, hp.n_head[il] * self.d_v))

    def build_query(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """The heads' parts that are not rotated and those that are: [rows, n_head, d_nope], [rows, n_head, d_rope]."""
        blk = f"blk.{il}"
        if self.n_lora_q:
            low = self.build_norm(g, self.build_mm(g, f"{blk}.attn_q_a", cur), f"{blk}.attn_q_a_norm", il)
            q = self.build_mm(g, f"{blk}.attn_q_b", low)
        else:
            q = self.build_mm(g, f"{blk}.attn_q", cur)
        q = ops.reshape(q, self.hparams.n_head[il], self.d_nope + self.d_rope)
        rotated = ops.rope(ops.head_columns(q, self.d_nope, self.d_rope), pos, self.rope(il), g.build_rope_factors(il))
        return ops.head_columns(q, 0, self.d_nope), rotated

    def build_latent(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """The normed latent [rows, n_lora_kv] and the rotated key that all heads share [rows, 1, d_rope]."""
        low = self.build_mm(g, f"blk.{il}.attn_kv_a_mqa", cur)
        shared = ops.reshape(ops.columns(low, self.n_lora_kv, self.d_rope), 1, self.d_rope)
        latent = ops.reshape(ops.columns(low, 0, self.n_lora_kv), 1, self.n_lora_kv)
        parts = [ops.head_columns(x, 0, n) for x, n in ((latent, self.n_lora_kv), (shared, self.d_rope))]
        rotated = ops.rope(parts[1], pos, self.rope(il), g.build_rope_factors(il))
        normed = self.build_norm(g, ops.reshape(parts[0], self.n_lora_kv), f"blk.{il}.attn_kv_a_norm", il)
        return normed, rotated


class DeepSeek2(LatentAttention, MoEDecoder):
    """Attention over the latent itself: keys' and values' projections are absorbed into query and output."""

    name = "deepseek2"
    rope_kind = "norm"
    norm_weights = False
    has_shared = True
    type_names = {27: "16B", 47: "30B.A3B", 60: "236B", 61: "671B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        hp = self.hparams
        self.n_lora_q = gguf.get_int("deepseek2.attention.q_lora_rank", 0, lo=0)
        self.n_lora_kv = gguf.get_int("deepseek2.attention.kv_lora_rank", lo=1)
        d_k = gguf.get_int("deepseek2.attention.key_length_mla", lo=1)
        self.d_v = gguf.get_int("deepseek2.attention.value_length_mla", lo=1)
        self.d_nope = d_k - self.d_rope
        if self.d_nope < 1 or set(hp.n_head_kv) != {1} or hp.n_embd_head_k != self.n_lora_kv + self.d_rope:
            raise HparamError("deepseek2.attention.key_length", "is not that of a latent cache", gguf.path)
        log_multiplier = gguf.get_float("deepseek2.rope.scaling.yarn_log_multiplier", 0.0) / 0.1
        stretch = -math.log(hp.rope.freq_scale)
        self.f_magnitude = 1.0 + 0.1 * log_multiplier * stretch if hp.rope.ext_factor else 1.0
        if hp.rope.ext_factor:  # YaRN's own magnitude goes into the score's scale instead
            rope = replace(hp.rope, attn_factor=hp.rope.attn_factor / (1.0 + 0.1 * stretch))
            self.hparams = replace(hp, rope=rope)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The latent attention's."""
        n_head = self.hparams.n_head[il]
        yield from self.query_tensors(il)
        yield TensorSpec(f"blk.{il}.attn_k_b.weight", (n_head, self.n_lora_kv, self.d_nope))
        yield TensorSpec(f"blk.{il}.attn_v_b.weight", (n_head, self.d_v, self.n_lora_kv))

    def layer_memory(self, il: int, n_ctx: int) -> LayerMemory:
        """The rotated key that all heads share, and the latent, which is the value too."""
        return replace(super().layer_memory(il, n_ctx), v_in_k=True)

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Queries moved into the latent space, attention there, values moved out."""
        n_head = self.hparams.n_head[il]
        plain, rotated = self.build_query(g, cur, pos, il)
        absorbed = ops.mul_mat_heads(g.weight(f"blk.{il}.attn_k_b.weight"), plain)
        latent, shared = self.build_latent(g, cur, pos, il)
        value = ops.reshape(latent, 1, self.n_lora_kv)
        q = g.build_cb(ops.concat_heads(rotated, absorbed), "Qcur", il)
        k = g.build_cb(ops.concat_heads(shared, value), "Kcur", il)
        out = g.build_attn(q, k, value, self.attn_spec(il), self.rope(il), None)
        out = ops.mul_mat_heads(g.weight(f"blk.{il}.attn_v_b.weight"), ops.reshape(out, n_head, self.n_lora_kv))
        cur = g.build_cb(ops.reshape(out, n_head * self.d_v), "kqv_out", il)
        return g.build_cb(self.build_mm(g, f"blk.{il}.attn_output", cur), "attn_out", il)

    def attn_scale(self) -> float:
        """By the head's size before absorption, and YaRN's magnitude on both sides."""
        return self.f_magnitude**2 / math.sqrt(self.d_nope + self.d_rope)


class MiniCPM3(LatentAttention):
    """Keys and values made from the latent before they are stored; scaled embeddings, residuals and logits."""

    name = "minicpm3"
    type_names = {62: "4B"}
    f_embedding_scale = 12.0  # constants of the family's one size; the file does not hold them
    f_residual_depth = 1.4
    n_embd_base = 256

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        hp = self.hparams
        self.n_lora_q = gguf.get_int("minicpm3.attention.q_lora_rank", lo=1)
        self.n_lora_kv = gguf.get_int("minicpm3.attention.kv_lora_rank", lo=1)
        self.d_nope = hp.n_embd_head_k - self.d_rope
        self.d_v = hp.n_embd // hp.n_head[0]
        if self.d_nope < 1 or hp.n_head != hp.n_head_kv:
            raise HparamError("minicpm3.attention.key_length", "does not fit its rotated part", gguf.path)
        self.hparams = replace(hp, n_embd_head_v=self.d_v)

    def tensors(self) -> Iterator[TensorSpec]:
        """The decoder's and, for long contexts, frequency factors."""
        yield from super().tensors()
        yield TensorSpec("rope_factors_short.weight", (self.d_rope // 2,), required=False)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The latent attention's."""
        n_head = self.hparams.n_head[il]
        yield from self.query_tensors(il)
        yield TensorSpec(f"blk.{il}.attn_kv_b.weight", (n_head * (self.d_nope + self.d_v), self.n_lora_kv))

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Ordinary attention over keys and values made from the latent."""
        n_head = self.hparams.n_head[il]
        plain, rotated = self.build_query(g, cur, pos, il)
        latent, shared = self.build_latent(g, cur, pos, il)
        kv = ops.reshape(self.build_mm(g, f"blk.{il}.attn_kv_b", latent), n_head, self.d_nope + self.d_v)
        q = g.build_cb(ops.concat_heads(rotated, plain), "Qcur", il)
        k = g.build_cb(ops.concat_heads(shared, ops.head_columns(kv, 0, self.d_nope)), "Kcur", il)
        v = g.build_cb(ops.head_columns(kv, self.d_nope, self.d_v), "Vcur", il)
        cur = g.build_cb(g.build_attn(q, k, v, self.attn_spec(il), self.rope(il), None), "kqv_out", il)
        return g.build_cb(self.build_mm(g, f"blk.{il}.attn_output", cur), "attn_out", il)

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """Embeddings times 12."""
        return ops.scale(super().build_inp_embd(g), self.f_embedding_scale)

    def scale_residual(self, cur: Tensor) -> Tensor:
        """By depth."""
        return ops.scale(cur, self.f_residual_depth / math.sqrt(self.hparams.n_layer))

    def scale_logits(self, logits: Tensor) -> Tensor:
        """By width."""
        return ops.scale(logits, self.n_embd_base / self.hparams.n_embd)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """The long factors beyond the original context."""
        is_short = 0 < n_ctx <= self.hparams.rope.n_ctx_orig
        return "rope_factors_short.weight" if is_short else "rope_factors_long.weight"
