"""Qwen3-Next and Qwen3.5: gated delta nets in most layers, gated attention in every fourth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from engine.arch.base import TensorSpec
from engine.arch.blocks.delta_net import (
    build_gated_delta_net,
    delta_net_state,
    delta_net_tensors,
    read_delta_net,
)
from engine.arch.hybrid import HybridDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState

FULL_ATTENTION_INTERVAL = 4


class DeltaNetDecoder(HybridDecoder):
    """A decoder of gated delta nets whose attention has a gate beside each query head.

    Positions are one number per token: for text the three axes of Qwen3.5's rotation agree.

    Attributes:
        joint: beta and alpha come from one matrix.
    """

    ffn_norm = "post_attention_norm"
    qk_norm = "head"
    joint: ClassVar[bool] = False

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        arch, n_layer = gguf.architecture, self.hparams.n_layer
        self.delta = read_delta_net(gguf)
        if gguf.has(f"{arch}.attention.recurrent_layers"):
            flags = gguf.get_ints(f"{arch}.attention.recurrent_layers")
            self.recurrent_layers = frozenset(il for il, flag in enumerate(flags[:n_layer]) if flag)
        else:
            step = gguf.get_int(f"{arch}.full_attention_interval", FULL_ATTENTION_INTERVAL, lo=1)
            self.recurrent_layers = frozenset(il for il in range(n_layer) if (il + 1) % step)
        if any(self.hparams.n_head_kv[il] == 0 for il in range(n_layer) if il not in self.recurrent_layers):
            raise HparamError(f"{arch}.attention.head_count_kv", "is 0 in a layer with attention", gguf.path)

    def is_recurrent(self, il: int) -> bool:
        """Whether a layer is a delta net."""
        return il in self.recurrent_layers

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The delta net's."""
        return delta_net_tensors(il, self.delta, self.hparams.n_embd, joint=self.joint)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The delta net."""
        return build_gated_delta_net(g, cur, il, self.delta, self.hparams.f_norm_rms_eps, joint=self.joint)

    def layer_state(self, il: int) -> LayerState:
        """What it carries along."""
        return delta_net_state(il, self.delta)

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The query matrix has the gates too."""
        for spec in super().attn_tensors(il):
            if spec.name == f"blk.{il}.attn_q.weight":
                yield TensorSpec(spec.name, (2 * spec.shape[0], spec.shape[1]))
            else:
                yield spec

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention whose output is gated head by head, or the delta net."""
        if self.is_recurrent(il):
            return super().build_self_attn(g, cur, pos, il)
        hp, blk = self.hparams, f"blk.{il}"
        d, n_head, n_head_kv = hp.n_embd_head_k, hp.n_head[il], hp.n_head_kv[il]
        both = ops.reshape(self.build_mm(g, f"{blk}.attn_q", cur), n_head, 2 * d)
        q, gate = ops.head_columns(both, 0, d), ops.head_columns(both, d, d)
        k = ops.reshape(self.build_mm(g, f"{blk}.attn_k", cur), n_head_kv, d)
        v = ops.reshape(self.build_mm(g, f"{blk}.attn_v", cur), n_head_kv, hp.n_embd_head_v)
        factors = g.build_rope_factors(il)
        q = ops.rope(self.build_norm(g, q, f"{blk}.attn_q_norm", il), pos, self.rope(il), factors)
        k = ops.rope(self.build_norm(g, k, f"{blk}.attn_k_norm", il), pos, self.rope(il), factors)
        q, k, v = g.build_cb(q, "Qcur", il), g.build_cb(k, "Kcur", il), g.build_cb(v, "Vcur", il)
        out = g.build_cb(g.build_attn(q, k, v, self.attn_spec(il), self.rope(il), None), "kqv_out", il)
        out = ops.glu(ops.reshape(gate, n_head * d), out, "sigmoid")
        return g.build_cb(self.build_mm(g, f"{blk}.attn_output", out), "attn_out", il)


class Qwen3Next(DeltaNetDecoder, MoEDecoder):
    """Qwen3-Next: always with experts."""

    name = "qwen3next"
    joint = True
    has_shared = True
    type_names = {48: "80B.A3B"}


class Qwen35(DeltaNetDecoder):
    """Qwen3.5, dense."""

    name = "qwen35"
    type_names = {24: "2B", 32: "9B", 64: "27B"}


class Qwen35MoE(DeltaNetDecoder, MoEDecoder):
    """Qwen3.5 with experts."""

    name = "qwen35moe"
    has_shared = True
    type_names = {40: "35B.A3B", 48: "122B.A10B", 60: "397B.A17B"}
