"""The decoder that most families vary: attention and feed-forward, each with a norm and a residual.

A family states its traits as class attributes and overrides the part that it does otherwise. Tensors are declared by
the same traits; those that only some files of a family have are optional.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from engine.arch.base import Arch, LayerMemory, TensorSpec
from engine.graph import ops
from engine.graph.tensor import AttnSpec, RopeSpec
from engine.hparams import HParams, read_hparams

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor


class DenseDecoder(Arch):
    """A decoder with norms, grouped-query attention and a feed-forward.

    Attributes:
        rope_kind: how heads are rotated: "norm", "neox" or "none".
        norm: "rms", or "layer" (with a bias where the file has one).
        norms_have_weights: False where norms only scale.
        activation: of the feed-forward, or of its gate.
        gated: the feed-forward has a gate.
        fused_gate_up: the `up` matrix holds the gate's rows and then its own.
        is_parallel: attention and feed-forward read the same input and are added together.
        attn_norm, ffn_norm: names of the norms before each part; "" for none (for ffn_norm in a parallel layer: the
            attention's).
        attn_post_norm, ffn_post_norm: names of the norms after each part; "" for none.
        qk_norm: query and key heads are normed: "head" each, "whole" before they are cut into heads, "rotated" each
            after rotation, "" not.
        has_qkv_bias: the file must have biases of q, k and v.
        fused_qkv: one matrix holds q, k and v.
        has_position_embd: positions are learned vectors.
        has_embd_norm: embeddings are normed.
        output_norm: name of the final norm.
        may_lack_heads: some layers are recurrent and have no heads.
        type_names: the family's size labels by number of layers.
    """

    rope_kind: ClassVar[str] = "neox"
    norm: ClassVar[Literal["rms", "layer"]] = "rms"
    norms_have_weights: ClassVar[bool] = True
    activation: ClassVar[str] = "silu"
    gated: ClassVar[bool] = True
    fused_gate_up: ClassVar[bool] = False
    is_parallel: bool = False
    attn_norm: ClassVar[str] = "attn_norm"
    ffn_norm: str = "ffn_norm"
    attn_post_norm: ClassVar[str] = ""
    ffn_post_norm: ClassVar[str] = ""
    qk_norm: Literal["", "head", "whole", "rotated"] = ""
    has_qkv_bias: ClassVar[bool] = False
    fused_qkv: ClassVar[bool] = False
    has_position_embd: ClassVar[bool] = False
    has_embd_norm: ClassVar[bool] = False
    output_norm: ClassVar[str] = "output_norm"
    may_lack_heads: ClassVar[bool] = False
    type_names: ClassVar[dict[int, str]] = {}

    hparams: HParams

    def __init__(self, gguf: GGUFFile) -> None:
        self.hparams = read_hparams(gguf, self.rope_kind, may_lack_heads=self.may_lack_heads)

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the model, in the order of use."""
        hp = self.hparams
        yield TensorSpec("token_embd.weight", (hp.n_vocab, hp.n_embd))
        if self.has_position_embd:
            yield TensorSpec("position_embd.weight", (hp.n_ctx_train, hp.n_embd))
        if self.has_embd_norm:
            yield from self.norm_tensors("token_embd_norm", hp.n_embd)
        for il in range(hp.n_layer):
            yield from self.attn_tensors(il)
            yield from self.ffn_tensors(il)
        yield from self.norm_tensors(self.output_norm, hp.n_embd)
        yield TensorSpec("output.weight", (hp.n_vocab, hp.n_embd), required=False)
        yield TensorSpec("output.bias", (hp.n_vocab,), required=False)
        if self.rope_factors(0, 0):
            yield TensorSpec(self.rope_factors(0, 0), (hp.rope.n_rot // 2,), required=False)

    def norm_tensors(self, name: str, n: int) -> Iterator[TensorSpec]:
        """A norm's weight and bias."""
        if name and self.norms_have_weights:
            yield TensorSpec(f"{name}.weight", (n,))
            if self.norm == "layer":
                yield TensorSpec(f"{name}.bias", (n,), required=False)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of one layer's attention."""
        hp, blk = self.hparams, f"blk.{il}"
        n_q, n_k, n_v = self.qkv_widths(il)
        for name in (self.attn_norm, self.attn_post_norm):
            yield from self.norm_tensors(name and f"{blk}.{name}", hp.n_embd)
        if self.fused_qkv:
            yield TensorSpec(f"{blk}.attn_qkv.weight", (n_q + n_k + n_v, hp.n_embd))
            yield TensorSpec(f"{blk}.attn_qkv.bias", (n_q + n_k + n_v,), required=False)
        else:
            for part, n_out in (("q", n_q), ("k", n_k), ("v", n_v)):
                yield TensorSpec(f"{blk}.attn_{part}.weight", (n_out, hp.n_embd))
                yield TensorSpec(f"{blk}.attn_{part}.bias", (n_out,), required=self.has_qkv_bias)
        if self.qk_norm:
            for part, n_out in (("q", n_q), ("k", n_k)):
                width = n_out if self.qk_norm == "whole" else self.n_embd_head(il)[0]
                yield TensorSpec(f"{blk}.attn_{part}_norm.weight", (width,))
        yield TensorSpec(f"{blk}.attn_output.weight", (hp.n_embd, hp.n_head[il] * self.n_embd_head(il)[1]))
        yield TensorSpec(f"{blk}.attn_output.bias", (hp.n_embd,), required=False)

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of one layer's feed-forward."""
        hp, blk = self.hparams, f"blk.{il}"
        for name in (self.ffn_norm, self.ffn_post_norm):
            yield from self.norm_tensors(name and f"{blk}.{name}", hp.n_embd)
        yield from self.mlp_tensors(blk, hp.n_ff[il])

    def mlp_tensors(self, blk: str, n_ff: int, suffix: str = "") -> Iterator[TensorSpec]:
        """The matrices of a feed-forward."""
        n_embd = self.hparams.n_embd
        for part, n_out, n_in in (("gate", n_ff, n_embd), ("up", n_ff, n_embd), ("down", n_embd, n_ff)):
            if part == "gate" and (self.fused_gate_up or not self.gated):
                continue
            if part == "up" and self.fused_gate_up:
                n_out = 2 * n_ff
            yield TensorSpec(f"{blk}.ffn_{part}{suffix}.weight", (n_out, n_in))
            yield TensorSpec(f"{blk}.ffn_{part}{suffix}.bias", (n_out,), required=False)

    def n_embd_head(self, il: int) -> tuple[int, int]:
        """Dims of a layer's key and value heads."""
        return self.hparams.n_embd_head_k, self.hparams.n_embd_head_v

    def qkv_widths(self, il: int) -> tuple[int, int, int]:
        """Rows of a layer's q, k and v matrices."""
        hp, (d_k, d_v) = self.hparams, self.n_embd_head(il)
        return hp.n_head[il] * d_k, hp.n_head_kv[il] * d_k, hp.n_head_kv[il] * d_v

    # -- graph ---------------------------------------------------------------------------------------------------

    def build(self, g: GraphI) -> GraphResult:
        """Embeddings, layers, final norm, output head."""
        inp = self.build_inp_embd(g)
        pos = g.build_inp("pos")
        for il in range(self.hparams.n_layer):
            inp = self.build_layer(g, inp, pos, il)
        return self.build_head(g, inp)

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """The input of the first layer."""
        inp = g.build_inp("embd")
        if self.has_position_embd:
            inp = ops.add(inp, ops.get_rows(g.weight("position_embd.weight"), g.build_inp("pos")))
        if self.has_embd_norm:
            inp = self.build_norm(g, inp, "token_embd_norm", -1)
        return g.build_cb(inp, "inp_embd")

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """One layer; in the last one only the rows that are asked for go on behind the attention."""
        is_last = il == self.hparams.n_layer - 1
        normed = self.build_norm(g, inp, f"blk.{il}.{self.attn_norm}", il) if self.attn_norm else inp
        cur = self.build_self_attn(g, normed, pos, il)
        if is_last:
            cur, inp = g.build_out(cur), g.build_out(inp)
            normed = g.build_out(normed) if self.is_parallel and not self.ffn_norm else normed
        if self.attn_post_norm:
            cur = self.build_norm(g, cur, f"blk.{il}.{self.attn_post_norm}", il)
        cur = self.scale_residual(cur)
        if self.is_parallel:
            ffn_in = self.build_norm(g, inp, f"blk.{il}.{self.ffn_norm}", il) if self.ffn_norm else normed
            ffn = g.build_cb(self.build_ffn(g, ffn_in, il), "ffn_out", il)
            cur = ops.add(ops.add(cur, ffn), inp)
        else:
            inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
            cur = self.build_norm(g, inp, f"blk.{il}.{self.ffn_norm}", il) if self.ffn_norm else inp
            cur = g.build_cb(self.build_ffn(g, cur, il), "ffn_out", il)
            if self.ffn_post_norm:
                cur = self.build_norm(g, cur, f"blk.{il}.{self.ffn_post_norm}", il)
            cur = ops.add(self.scale_residual(cur), inp)
        return g.build_cb(g.build_cvec(cur, il), "l_out", il)

    def scale_residual(self, cur: Tensor) -> Tensor:
        """What a family does to a part's output before it is added."""
        return cur

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """q, k, v with their positions, attention, output projection."""
        q, k, v = self.build_qkv(g, cur, il)
        if self.uses_rope(il):
            factors = g.build_rope_factors(il)
            q = ops.rope(q, pos, self.rope(il), factors)
            k = ops.rope(k, pos, self.rope(il), factors)
        if self.qk_norm == "rotated":
            q, k = (self.build_norm(g, x, f"blk.{il}.attn_{n}_norm", il) for n, x in (("q", q), ("k", k)))
        q, k, v = g.build_cb(self.scale_q(g, q, il), "Qcur", il), g.build_cb(k, "Kcur", il), g.build_cb(v, "Vcur", il)
        cur = g.build_attn(q, k, v, self.attn_spec(il), self.key_rope(il), self.sinks(g, il))
        return g.build_cb(self.build_mm(g, f"blk.{il}.attn_output", g.build_cb(cur, "kqv_out", il)), "attn_out", il)

    def build_qkv(self, g: GraphI, cur: Tensor, il: int) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value heads, normed but not rotated."""
        hp, blk = self.hparams, f"blk.{il}"
        n_q, n_k, n_v = self.qkv_widths(il)
        if self.fused_qkv:
            qkv = self.limit_qkv(self.build_mm(g, f"{blk}.attn_qkv", cur))
            q, k, v = ops.columns(qkv, 0, n_q), ops.columns(qkv, n_q, n_k), ops.columns(qkv, n_q + n_k, n_v)
        else:
            q, k, v = (self.limit_qkv(self.build_mm(g, f"{blk}.attn_{part}", cur)) for part in "qkv")
        if self.qk_norm == "whole":
            q, k = (self.build_norm(g, x, f"{blk}.attn_{n}_norm", il) for n, x in (("q", q), ("k", k)))
        d_k, d_v = self.n_embd_head(il)
        q = ops.reshape(q, hp.n_head[il], d_k)
        k = ops.reshape(k, hp.n_head_kv[il], d_k)
        v = ops.reshape(v, hp.n_head_kv[il], d_v)
        if self.qk_norm == "head":
            q, k = (self.build_norm(g, x, f"{blk}.attn_{n}_norm", il) for n, x in (("q", q), ("k", k)))
        return q, k, v

    def limit_qkv(self, cur: Tensor) -> Tensor:
        """What a family does to the outputs of the q, k and v matrices."""
        return cur

    def scale_q(self, g: GraphI, q: Tensor, il: int) -> Tensor:
        """What a family does to rotated query heads."""
        return q

    def sinks(self, g: GraphI, il: int) -> Tensor | None:
        """Logits f32[n_head] that take attention but have no value, or None."""
        return None

    def build_ffn(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The feed-forward of normed rows."""
        return self.build_mlp(g, cur, f"blk.{il}", il)

    def build_mlp(self, g: GraphI, cur: Tensor, blk: str, il: int, suffix: str = "") -> Tensor:
        """A gated or plain feed-forward by the names of its matrices."""
        up = self.build_mm(g, f"{blk}.ffn_up{suffix}", cur)
        if self.fused_gate_up:
            n_ff = up.n_row // 2
            hidden = ops.glu(ops.columns(up, 0, n_ff), ops.columns(up, n_ff, n_ff), self.activation)
        elif self.gated:
            hidden = ops.glu(self.build_mm(g, f"{blk}.ffn_gate{suffix}", cur), up, self.activation)
        else:
            hidden = ops.unary(up, self.activation)
        return self.build_mm(g, f"{blk}.ffn_down{suffix}", hidden)

    def build_head(self, g: GraphI, inp: Tensor) -> GraphResult:
        """Final norm and output head; the head is the embedding matrix where the file has none of its own."""
        embd = self.build_norm(g, inp, self.output_norm, -1)
        head = g.weight_or_none("output.weight") or g.weight("token_embd.weight")
        logits = self.scale_logits(g.build_lora_mm(head, embd, g.weight_or_none("output.bias")))
        return g.result(embd=embd, logits=g.build_cb(logits, "result_output"))

    def scale_logits(self, logits: Tensor) -> Tensor:
        """What a family does to the logits."""
        return logits

    def build_mm(self, g: GraphI, name: str, cur: Tensor) -> Tensor:
        """A projection with its bias where the file has one."""
        return g.build_lora_mm(g.weight(f"{name}.weight"), cur, g.weight_or_none(f"{name}.bias"))

    def build_norm(self, g: GraphI, cur: Tensor, name: str, il: int) -> Tensor:
        """A norm by the name of its weight."""
        weight = g.weight(f"{name}.weight") if self.norms_have_weights else None
        if self.norm == "rms":
            normed = ops.rms_norm(cur, weight, self.hparams.f_norm_rms_eps)
        else:
            normed = ops.layer_norm(cur, weight, g.weight_or_none(f"{name}.bias"), self.hparams.f_norm_eps)
        return g.build_cb(normed, name.rpartition(".")[2], il)

    # -- memory --------------------------------------------------------------------------------------------------

    def rope(self, il: int) -> RopeSpec:
        """How a layer's heads are rotated."""
        return self.hparams.rope

    def uses_rope(self, il: int) -> bool:
        """Whether a layer's heads are rotated."""
        return self.rope(il).kind != "none"

    def key_rope(self, il: int) -> RopeSpec:
        """How a layer's keys in the cache are rotated."""
        return self.rope(il) if self.uses_rope(il) else RopeSpec("none", 0, 10000.0)

    def rope_factors(self, il: int, n_ctx: int) -> str:
        """The name of the tensor of frequency factors for a context of n_ctx positions, or ""."""
        return ""

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window: its kind and its length in positions."""
        return "none", 0

    def attn_scale(self) -> float:
        """The factor on q.k."""
        return 1.0 / math.sqrt(self.hparams.n_embd_head_k)

    def attn_spec(self, il: int) -> AttnSpec:
        """A layer's attention."""
        hp, (d_k, d_v) = self.hparams, self.n_embd_head(il)
        swa_kind, n_swa = self.swa(il)
        return AttnSpec(
            cache=0, il=il, n_head=hp.n_head[il], n_head_kv=hp.n_head_kv[il], d_k=d_k, d_v=d_v,
            scale=self.attn_scale(), rope=self.rope(il), swa_kind=swa_kind, n_swa=n_swa,
        )  # fmt: skip

    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of every layer."""
        return tuple(self.layer_memory(il, n_ctx) for il in range(self.hparams.n_layer))

    def layer_memory(self, il: int, n_ctx: int) -> LayerMemory:
        """Keys and values of one layer."""
        return LayerMemory(
            il, self.hparams.n_head_kv[il], *self.n_embd_head(il), self.key_rope(il), self.rope_factors(il, n_ctx),
            *self.swa(il),
        )  # fmt: skip

    def type_name(self) -> str:
        """The size label, by the number of layers."""
        return self.type_names.get(self.hparams.n_layer, "")
