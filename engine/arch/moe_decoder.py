"""The decoder with experts that most mixture families vary: some dense layers first, then routed and shared experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from engine.arch.base import TensorSpec
from engine.arch.blocks.moe import build_moe_ffn, moe_tensors
from engine.arch.decoder import DenseDecoder
from engine.errors import HparamError
from engine.graph import ops
from engine.hparams import read_experts

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor

GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_weight"}
"""`expert_gating_func` by its GGUF numbers."""


class MoEDecoder(DenseDecoder):
    """A decoder whose feed-forward is experts, from some layer on.

    Attributes:
        gating: how router logits become weights, where the file does not say.
        norm_weights: the chosen weights are divided by their sum, where the file does not say.
        requires_experts: a file without experts is none of the family.
        has_shared: the file may have experts that every token uses.
        n_layer_dense: leading layers without experts.
    """

    gating: ClassVar[str] = "softmax"
    norm_weights: ClassVar[bool] = True
    requires_experts: ClassVar[bool] = True
    has_shared: ClassVar[bool] = False

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        arch = gguf.architecture
        self.n_expert, self.n_expert_used = read_experts(gguf)
        if self.requires_experts and not self.n_expert:
            raise HparamError(f"{arch}.expert_count", "is missing", gguf.path)
        self.n_ff_exp = gguf.get_int(f"{arch}.expert_feed_forward_length", max(self.hparams.n_ff), lo=1)
        n_shared = gguf.get_int(f"{arch}.expert_shared_count", 0, lo=0, hi=1024)
        self.n_ff_shared = gguf.get_int(
            f"{arch}.expert_shared_feed_forward_length", n_shared * self.n_ff_exp or self.n_ff_exp, lo=0
        )
        self.n_layer_dense = gguf.get_int(f"{arch}.leading_dense_block_count", 0, lo=0)
        self.file_gating = GATINGS.get(gguf.get_int(f"{arch}.expert_gating_func", 0, lo=0), self.gating)
        self.file_norm_weights = gguf.get_bool(f"{arch}.expert_weights_norm", self.norm_weights)
        self.weight_scale = gguf.get_float(f"{arch}.expert_weights_scale", 0.0) or 1.0
        self.n_group = gguf.get_int(f"{arch}.expert_group_count", 1, lo=0, hi=64) or 1
        self.n_group_used = gguf.get_int(f"{arch}.expert_group_used_count", 1, lo=0, hi=64) or 1
        if self.n_expert % self.n_group or self.n_group_used > self.n_group:
            raise HparamError(f"{arch}.expert_group_count", f"{self.n_group} for {self.n_expert} experts", gguf.path)

    def is_moe(self, il: int) -> bool:
        """Whether a layer has experts."""
        return self.n_expert > 0 and il >= self.n_layer_dense

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The feed-forward, or the router, its experts and the shared ones."""
        if not self.is_moe(il):
            yield from super().ffn_tensors(il)
            return
        hp, blk = self.hparams, f"blk.{il}"
        for name in (self.ffn_norm, self.ffn_post_norm):
            yield from self.norm_tensors(name and f"{blk}.{name}", hp.n_embd)
        yield from moe_tensors(il, self.n_expert, hp.n_embd, self.n_ff_exp)
        if self.has_shared:
            for spec in self.mlp_tensors(blk, self.n_ff_shared, "_shexp"):
                yield TensorSpec(spec.name, spec.shape, required=False)
            yield TensorSpec(f"{blk}.ffn_gate_inp_shexp.weight", (1, hp.n_embd), required=False)

    def build_ffn(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The feed-forward, or the chosen experts' and the shared ones'."""
        if not self.is_moe(il):
            return super().build_ffn(g, cur, il)
        out = build_moe_ffn(
            g, cur, il, n_expert_used=self.n_expert_used, activation=self.activation, gating=self.file_gating,
            norm_weights=self.file_norm_weights, weight_scale=self.weight_scale, n_group=self.n_group,
            n_group_used=self.n_group_used,
        )  # fmt: skip
        if not self.has_shared or g.weight_or_none(f"blk.{il}.ffn_up_shexp.weight") is None:
            return out
        shared = self.build_mlp(g, cur, f"blk.{il}", il, "_shexp")
        gate = g.weight_or_none(f"blk.{il}.ffn_gate_inp_shexp.weight")
        if gate is not None:
            shared = ops.mul(shared, ops.unary(ops.mul_mat(gate, cur), "sigmoid"))
        return ops.add(out, g.build_cb(shared, "ffn_shexp", il))
