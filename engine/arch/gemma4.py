"""gemma4: Gemma 4, dense, with experts, and the small ones with an embedding of their own for every layer.

Source: the model card of google/gemma-4 and the tensors of its GGUF files (architecture "gemma4"). Layers with a sliding window
and those without differ in head size and rotation; the last layers may look at the keys and values of earlier ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.arch.base import LayerMemory, TensorSpec
from engine.arch.blocks.moe import build_moe_ffn, moe_tensors
from engine.arch.gemma3 import Gemma3
from engine.errors import HparamError
from engine.graph import ops
from engine.hparams import per_layer, read_experts

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor


class Gemma4(Gemma3):
    """Gemma 3 with head sizes by the kind of layer, shared keys and values, experts beside the feed-forward.

    Attributes:
        layer_is_swa: which layers have the sliding window.
        n_embd_head_swa: dims of their key and value heads.
        n_layer_kv: leading layers with keys and values of their own.
        n_embd_per_layer: width of each layer's own embedding of a token, 0 for none.
    """

    name = "gemma4"
    type_names = {30: "26B.A4B", 35: "E2B", 42: "E4B", 60: "31B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        hp = self.hparams
        pattern = per_layer(gguf, "gemma4.attention.sliding_window_pattern", hp.n_layer)
        self.layer_is_swa = tuple(bool(flag) for flag in pattern)
        d_k = gguf.get_int("gemma4.attention.key_length_swa", hp.n_embd_head_k, lo=1, hi=8192)
        d_v = gguf.get_int("gemma4.attention.value_length_swa", hp.n_embd_head_v, lo=1, hi=8192)
        self.n_embd_head_swa = (d_k, d_v)
        n_rot = gguf.get_int("gemma4.rope.dimension_count_swa", d_k, lo=2, hi=d_k)
        self.rope_swa = replace(self.rope_swa, n_rot=n_rot)
        self.n_layer_kv = hp.n_layer - gguf.get_int("gemma4.attention.shared_kv_layers", 0, lo=0, hi=hp.n_layer - 1)
        if set(self.layer_is_swa) - set(self.layer_is_swa[: self.n_layer_kv]):
            raise HparamError("gemma4.attention.shared_kv_layers", "leaves a kind of layer without keys", gguf.path)
        if d_k != d_v or hp.n_embd_head_k != hp.n_embd_head_v or n_rot % 2:
            raise HparamError("gemma4.attention.value_length", "differs from the key's", gguf.path)
        self.n_embd_per_layer = gguf.get_int("gemma4.embedding_length_per_layer_input", 0, lo=0, hi=1 << 16)
        self.n_expert, self.n_expert_used = read_experts(gguf)
        self.n_ff_exp = gguf.get_int("gemma4.expert_feed_forward_length", max(hp.n_ff), lo=1)
        self.is_fused = "blk.0.ffn_gate_up_exps.weight" in gguf.tensors
        self.values_are_keys = tuple(f"blk.{il}.attn_v.weight" not in gguf.tensors for il in range(hp.n_layer))

    def is_swa(self, il: int) -> bool:
        """Whether a layer looks through the sliding window."""
        return self.n_swa > 0 and self.layer_is_swa[il]

    def n_embd_head(self, il: int) -> tuple[int, int]:
        """Dims of a layer's key and value heads."""
        return self.n_embd_head_swa if self.layer_is_swa[il] else super().n_embd_head(il)

    def kv_layer(self, il: int) -> int:
        """The layer whose keys and values layer il looks at: itself, or the last of its kind that has some."""
        if il < self.n_layer_kv:
            return il
        return max(i for i in range(self.n_layer_kv) if self.layer_is_swa[i] == self.layer_is_swa[il])

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[TensorSpec]:
        """Gemma's, the layers' scales, and the embeddings by layer."""
        hp, n = self.hparams, self.n_embd_per_layer
        yield from super().tensors()
        yield TensorSpec("rope_freqs.weight", (hp.rope.n_rot // 2,), required=not all(self.layer_is_swa))
        if n:
            yield TensorSpec("per_layer_token_embd.weight", (hp.n_vocab, hp.n_layer * n), mapped=True)
            yield TensorSpec("per_layer_model_proj.weight", (hp.n_layer * n, hp.n_embd))
            yield TensorSpec("per_layer_proj_norm.weight", (n,))
        for il in range(hp.n_layer):
            yield TensorSpec(f"blk.{il}.layer_output_scale.weight", (1,), required=False)
            if n:
                yield TensorSpec(f"blk.{il}.inp_gate.weight", (n, hp.n_embd))
                yield TensorSpec(f"blk.{il}.proj.weight", (hp.n_embd, n))
                yield TensorSpec(f"blk.{il}.post_norm.weight", (hp.n_embd,))

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """A layer's attention: without keys where it looks at another's, without values where they are the keys."""
        absent = ["attn_k", "attn_v"] if il >= self.n_layer_kv else ["attn_v"] if self.values_are_keys[il] else []
        for spec in super().attn_tensors(il):
            if not any(spec.name.startswith((f"blk.{il}.{name}.", f"blk.{il}.{name}_norm.")) for name in absent):
                yield spec

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The feed-forward, and the experts beside it."""
        n_embd = self.hparams.n_embd
        yield from super().ffn_tensors(il)
        if self.n_expert:
            yield TensorSpec(f"blk.{il}.ffn_gate_inp.scale", (n_embd,))
            for name in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                yield from self.norm_tensors(f"blk.{il}.{name}", n_embd)
            yield from moe_tensors(il, self.n_expert, n_embd, self.n_ff_exp, fused=self.is_fused)

    # -- graph ---------------------------------------------------------------------------------------------------

    def build(self, g: GraphI) -> GraphResult:
        """Gemma's layers, each followed by what its own embedding of the token adds."""
        inp = self.build_inp_embd(g)
        pos = g.build_inp("pos")
        own = self.build_inp_per_layer(g, inp) if self.n_embd_per_layer else None
        for il in range(self.hparams.n_layer):
            inp = self.build_layer(g, inp, pos, il)
            if own is not None:
                inp = self.build_own_embd(
                    g, inp, ops.columns(own, il * self.n_embd_per_layer, self.n_embd_per_layer), il
                )
            scale = g.weight_or_none(f"blk.{il}.layer_output_scale.weight")
            inp = g.build_cb(g.build_cvec(inp if scale is None else ops.mul(inp, scale), il), "l_out", il)
        return self.build_head(g, inp)

    def build_inp_per_layer(self, g: GraphI, inp: Tensor) -> Tensor:
        """Every layer's own embedding f32[n_tokens, n_layer * n]: of the token, and from the model's embedding."""
        n, n_layer = self.n_embd_per_layer, self.hparams.n_layer
        cur = ops.scale(g.build_lora_mm(g.weight("per_layer_model_proj.weight"), inp), self.hparams.n_embd**-0.5)
        cur = self.build_norm(g, ops.reshape(cur, n_layer, n), "per_layer_proj_norm", -1)
        # (cur + sqrt(n) * rows) / sqrt(2), with the factors outside so that rows may be one row for all
        cur = ops.add(
            ops.scale(ops.reshape(cur, n_layer * n), n**-0.5), g.build_inp_rows("per_layer_token_embd.weight")
        )
        return g.build_cb(ops.scale(cur, math.sqrt(n / 2)), "inp_per_layer")

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention and feed-forward, each with its norms and residual."""
        cur = self.build_self_attn(g, self.build_norm(g, inp, f"blk.{il}.attn_norm", il), pos, il)
        if il == self.hparams.n_layer - 1:
            cur, inp = g.build_out(cur), g.build_out(inp)
        cur = self.build_norm(g, cur, f"blk.{il}.post_attention_norm", il)
        inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
        cur = self.build_ffn(g, self.build_norm(g, inp, f"blk.{il}.ffn_norm", il), il)
        if self.n_expert:
            cur = self.build_norm(g, cur, f"blk.{il}.post_ffw_norm_1", il)
            cur = ops.add(cur, self.build_experts(g, inp, il))
        cur = self.build_norm(g, g.build_cb(cur, "ffn_out", il), f"blk.{il}.post_ffw_norm", il)
        return ops.add(cur, inp)

    def build_experts(self, g: GraphI, inp: Tensor, il: int) -> Tensor:
        """The experts of rows that are not normed yet, for the router norms them in its own way."""
        router = ops.scale(ops.rms_norm(inp, None, self.hparams.f_norm_rms_eps), self.hparams.n_embd**-0.5)
        router = ops.mul(router, g.weight(f"blk.{il}.ffn_gate_inp.scale"))
        logits = g.build_lora_mm(g.weight(f"blk.{il}.ffn_gate_inp.weight"), router)
        cur = self.build_norm(g, inp, f"blk.{il}.pre_ffw_norm_2", il)
        cur = build_moe_ffn(g, cur, il, n_expert_used=self.n_expert_used, logits=logits, activation=self.activation)
        return self.build_norm(g, cur, f"blk.{il}.post_ffw_norm_2", il)

    def build_own_embd(self, g: GraphI, inp: Tensor, own: Tensor, il: int) -> Tensor:
        """A layer's output and, gated by it, the layer's own embedding f32[n_tokens, n]."""
        if il == self.hparams.n_layer - 1:
            own = g.build_out(own)
        gate = ops.unary(self.build_mm(g, f"blk.{il}.inp_gate", inp), self.activation)
        cur = self.build_norm(g, self.build_mm(g, f"blk.{il}.proj", ops.mul(gate, own)), f"blk.{il}.post_norm", il)
        return ops.add(inp, g.build_cb(cur, "per_layer_embd_out", il))

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention over the layer's own keys and values, or over another's."""
        if il < self.n_layer_kv:
            return super().build_self_attn(g, cur, pos, il)
        blk, source = f"blk.{il}", self.kv_layer(il)
        q = ops.reshape(self.build_mm(g, f"{blk}.attn_q", cur), self.hparams.n_head[il], self.n_embd_head(il)[0])
        q = ops.rope(self.build_norm(g, q, f"{blk}.attn_q_norm", il), pos, self.rope(il), g.build_rope_factors(source))
        spec = replace(self.attn_spec(il), il=source)
        cur = g.build_cb(g.build_attn_shared(g.build_cb(q, "Qcur", il), spec, self.rope(il)), "kqv_out", il)
        return g.build_cb(self.build_mm(g, f"{blk}.attn_output", cur), "attn_out", il)

    def build_qkv(self, g: GraphI, cur: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """Heads, all normed, the values without weights; values that are the keys branch off before the keys' norm."""
        hp, blk, d = self.hparams, f"blk.{il}", self.n_embd_head(il)[0]
        q = ops.reshape(self.build_mm(g, f"{blk}.attn_q", cur), hp.n_head[il], d)
        k = ops.reshape(self.build_mm(g, f"{blk}.attn_k", cur), hp.n_head_kv[il], d)
        v = k
        if not self.values_are_keys[il]:
            v = ops.reshape(self.build_mm(g, f"{blk}.attn_v", cur), hp.n_head_kv[il], d)
        q, k = (self.build_norm(g, x, f"{blk}.attn_{n}_norm", il) for n, x in (("q", q), ("k", k)))
        return q, k, ops.rms_norm(v, None, hp.f_norm_rms_eps)

    # -- memory --------------------------------------------------------------------------------------------------

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """Layers without a window rotate only some of their dims: the factors of the others are huge."""
        return "" if self.layer_is_swa[il] else "rope_freqs.weight"

    def attn_scale(self) -> float:
        """None: queries and keys are normed."""
        return 1.0

    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of the layers that have their own."""
        return tuple(self.layer_memory(il, n_ctx) for il in range(self.n_layer_kv))
