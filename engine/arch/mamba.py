"""Mamba and Mamba-2: nothing but state-space layers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.blocks.ssm import (
    SsmSizes,
    build_mamba2_layer,
    build_mamba_layer,
    mamba2_state,
    mamba2_tensors,
    mamba_state,
    mamba_tensors,
    read_mamba2,
    read_ssm,
)
from engine.arch.hybrid import HybridDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.arch.base import TensorSpec
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState


class Mamba(HybridDecoder):
    """Norm, mixer and residual in every layer, no feed-forward."""

    name = "mamba"
    rope_kind = "none"

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.ssm = self.read_sizes(gguf)
        self.plain_norms = gguf.get_bool(f"{gguf.architecture}.ssm.dt_b_c_rms", False)

    def read_sizes(self, gguf: GGUFFile) -> SsmSizes:
        """The layers' sizes."""
        return read_ssm(gguf)

    def is_recurrent(self, il: int) -> bool:
        """All are."""
        return True

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """None."""
        return iter(())

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The mixer's."""
        return mamba_tensors(il, self.ssm, self.hparams.n_embd)

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """The mixer of normed rows, added."""
        cur = self.build_mixer(g, self.build_norm(g, inp, f"blk.{il}.attn_norm", il), il)
        if il == self.hparams.n_layer - 1:
            cur, inp = g.build_out(cur), g.build_out(inp)
        return g.build_cb(g.build_cvec(ops.add(cur, inp), il), "l_out", il)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The mixer."""
        return build_mamba_layer(g, cur, il, self.ssm, self.hparams.f_norm_rms_eps, plain_norms=self.plain_norms)

    def layer_state(self, il: int) -> LayerState:
        """What the mixer carries along."""
        return mamba_state(il, self.ssm)

    def type_name(self) -> str:
        """By the width."""
        by_width = {768: "0.1B", 1024: "0.4B", 1536: "0.8B", 2048: "1.4B", 2560: "2.8B"}
        return by_width.get(self.hparams.n_embd, "")


class Mamba2(Mamba):
    """Heads that share their decay."""

    name = "mamba2"

    def read_sizes(self, gguf: GGUFFile) -> SsmSizes:
        """The layers' sizes."""
        return read_mamba2(gguf)

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The mixer's."""
        return mamba2_tensors(il, self.ssm, self.hparams.n_embd)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The mixer."""
        return build_mamba2_layer(g, cur, il, self.ssm, self.hparams.f_norm_rms_eps)

    def layer_state(self, il: int) -> LayerState:
        """What the mixer carries along."""
        return mamba2_state(il, self.ssm)
