"""The dense decoder that most families vary: pre-norm attention and a gated feed-forward, each with a residual."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import Arch, LayerMemory, TensorSpec
from engine.graph import ops
from engine.graph.tensor import AttnSpec, RopeSpec
from engine.hparams import HParams

if TYPE_CHECKING:
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor


class DenseDecoder(Arch):
    """A decoder with RMS norms, grouped-query attention with RoPE, and a SiLU-gated feed-forward.

    A family overrides what it does otherwise; each method builds one recognisable part.
    """

    hparams: HParams
    activation = "silu"
    has_qkv_bias = False

    # -- tensors -------------------------------------------------------------------------------------------------

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the model, in the order of use."""
        hp = self.hparams
        yield TensorSpec("token_embd.weight", (hp.n_vocab, hp.n_embd))
        for il in range(hp.n_layer):
            yield from self.layer_tensors(il)
        yield TensorSpec("output_norm.weight", (hp.n_embd,))
        yield TensorSpec("output.weight", (hp.n_vocab, hp.n_embd), required=False)

    def layer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of one layer."""
        yield from self.attn_tensors(il)
        yield from self.ffn_tensors(il)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of one layer's attention."""
        hp = self.hparams
        n_q = hp.n_head[il] * hp.n_embd_head_k
        n_k = hp.n_head_kv[il] * hp.n_embd_head_k
        n_v = hp.n_head_kv[il] * hp.n_embd_head_v
        yield TensorSpec(f"blk.{il}.attn_norm.weight", (hp.n_embd,))
        for name, n_out in (("q", n_q), ("k", n_k), ("v", n_v)):
            yield TensorSpec(f"blk.{il}.attn_{name}.weight", (n_out, hp.n_embd))
            yield TensorSpec(f"blk.{il}.attn_{name}.bias", (n_out,), required=self.has_qkv_bias)
        yield TensorSpec(f"blk.{il}.attn_output.weight", (hp.n_embd, hp.n_head[il] * hp.n_embd_head_v))
        yield TensorSpec(f"blk.{il}.attn_output.bias", (hp.n_embd,), required=False)

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of one layer's feed-forward."""
        hp = self.hparams
        n_ff = hp.n_ff[il]
        yield TensorSpec(f"blk.{il}.ffn_norm.weight", (hp.n_embd,))
        for name, n_out, n_in in (("gate", n_ff, hp.n_embd), ("up", n_ff, hp.n_embd), ("down", hp.n_embd, n_ff)):
            yield TensorSpec(f"blk.{il}.ffn_{name}.weight", (n_out, n_in))
            yield TensorSpec(f"blk.{il}.ffn_{name}.bias", (n_out,), required=False)

    # -- graph ---------------------------------------------------------------------------------------------------

    def build(self, g: GraphI) -> GraphResult:
        """Embeddings, layers, final norm, output head."""
        hp = self.hparams
        inp = self.build_inp_embd(g)
        pos = g.build_inp("pos")
        for il in range(hp.n_layer):
            last = il == hp.n_layer - 1
            cur = self.build_attn_layer(g, inp, pos, il)
            if last:
                cur, inp = g.build_out(cur), g.build_out(inp)
            inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
            cur = g.build_cb(self.build_ffn_layer(g, inp, il), "ffn_out", il)
            inp = g.build_cb(g.build_cvec(ops.add(cur, inp), il), "l_out", il)
        return self.build_head(g, inp)

    def build_inp_embd(self, g: GraphI) -> Tensor:
        """The input of the first layer."""
        return g.build_cb(g.build_inp("embd"), "inp_embd")

    def build_attn_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """Norm, attention and output projection, without the residual."""
        cur = self.build_norm(g, inp, f"blk.{il}.attn_norm", il)
        return self.build_self_attn(g, cur, pos, il)

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """q, k, v with their positions, attention, output projection."""
        hp = self.hparams
        q = ops.reshape(self.build_mm(g, f"blk.{il}.attn_q", cur), hp.n_head[il], hp.n_embd_head_k)
        k = ops.reshape(self.build_mm(g, f"blk.{il}.attn_k", cur), hp.n_head_kv[il], hp.n_embd_head_k)
        v = ops.reshape(self.build_mm(g, f"blk.{il}.attn_v", cur), hp.n_head_kv[il], hp.n_embd_head_v)
        q, k = self.build_qk(g, q, k, il)
        factors = g.build_rope_factors(il)
        q = g.build_cb(ops.rope(q, pos, self.rope(il), factors), "Qcur", il)
        k = g.build_cb(ops.rope(k, pos, self.rope(il), factors), "Kcur", il)
        cur = g.build_attn(q, k, g.build_cb(v, "Vcur", il), self.attn_spec(il), self.rope(il), None)
        return g.build_cb(self.build_mm(g, f"blk.{il}.attn_output", g.build_cb(cur, "kqv_out", il)), "attn_out", il)

    def build_qk(self, g: GraphI, q: Tensor, k: Tensor, il: int) -> tuple[Tensor, Tensor]:
        """What a family does to query and key heads before they are rotated."""
        return q, k

    def build_ffn_layer(self, g: GraphI, inp: Tensor, il: int) -> Tensor:
        """Norm and gated feed-forward, without the residual."""
        cur = self.build_norm(g, inp, f"blk.{il}.ffn_norm", il)
        gate = self.build_mm(g, f"blk.{il}.ffn_gate", cur)
        up = self.build_mm(g, f"blk.{il}.ffn_up", cur)
        return self.build_mm(g, f"blk.{il}.ffn_down", ops.glu(gate, up, self.activation))

    def build_head(self, g: GraphI, inp: Tensor) -> GraphResult:
        """Final norm and output head; the head is the embedding matrix where the file has none of its own."""
        embd = self.build_norm(g, inp, "output_norm", -1)
        head = g.weight_or_none("output.weight") or g.weight("token_embd.weight")
        return g.result(embd=embd, logits=g.build_cb(g.build_lora_mm(head, embd), "result_output"))

    def build_mm(self, g: GraphI, name: str, cur: Tensor) -> Tensor:
        """A projection with its bias where the file has one."""
        return g.build_lora_mm(g.weight(f"{name}.weight"), cur, g.weight_or_none(f"{name}.bias"))

    def build_norm(self, g: GraphI, cur: Tensor, name: str, il: int) -> Tensor:
        """An RMS norm by the name of its weight."""
        normed = ops.rms_norm(cur, g.weight(f"{name}.weight"), self.hparams.f_norm_rms_eps)
        return g.build_cb(normed, name.rpartition(".")[2], il)

    # -- memory --------------------------------------------------------------------------------------------------

    def rope(self, il: int) -> RopeSpec:
        """How a layer's heads are rotated."""
        return self.hparams.rope

    def rope_factors(self, il: int) -> str:
        """The name of the tensor of frequency factors, or ""."""
        return "rope_freqs.weight"

    def swa(self, il: int) -> tuple[str, int]:
        """A layer's sliding window: its kind and its length in positions."""
        return "none", 0

    def attn_scale(self) -> float:
        """The factor on q.k."""
        return 1.0 / math.sqrt(self.hparams.n_embd_head_k)

    def attn_spec(self, il: int) -> AttnSpec:
        """A layer's attention."""
        hp = self.hparams
        swa_kind, n_swa = self.swa(il)
        return AttnSpec(
            cache=0,
            il=il,
            n_head=hp.n_head[il],
            n_head_kv=hp.n_head_kv[il],
            d_k=hp.n_embd_head_k,
            d_v=hp.n_embd_head_v,
            scale=self.attn_scale(),
            rope=self.rope(il),
            swa_kind=swa_kind,
            n_swa=n_swa,
        )

    def memory_spec(self) -> tuple[LayerMemory, ...]:
        """Keys and values of every layer."""
        hp = self.hparams
        return tuple(
            LayerMemory(
                il,
                hp.n_head_kv[il],
                hp.n_embd_head_k,
                hp.n_embd_head_v,
                self.rope(il),
                self.rope_factors(il),
                *self.swa(il),
            )
            for il in range(hp.n_layer)
        )
