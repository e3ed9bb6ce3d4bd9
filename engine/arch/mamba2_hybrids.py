"""Hybrids of Mamba-2 and attention: Granite 4 (either in each layer) and Falcon-H1 (both side by side)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.blocks.ssm import build_mamba2_layer, mamba2_state, mamba2_tensors, read_mamba2
from engine.arch.decoder import DenseDecoder
from engine.arch.granite import GraniteScales
from engine.arch.hybrid import HybridDecoder
from engine.arch.moe_decoder import MoEDecoder
from engine.graph import ops

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState


class Mamba2Hybrid(HybridDecoder):
    """A decoder whose recurrent layers are Mamba-2's."""

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.ssm = read_mamba2(gguf)

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The Mamba-2 layer's."""
        return mamba2_tensors(il, self.ssm, self.hparams.n_embd)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The Mamba-2 layer."""
        return build_mamba2_layer(g, cur, il, self.ssm, self.hparams.f_norm_rms_eps)

    def layer_state(self, il: int) -> LayerState:
        """What it carries along."""
        return mamba2_state(il, self.ssm)


class GraniteHybrid(Mamba2Hybrid, GraniteScales, MoEDecoder):
    """Granite's multipliers; layers without key heads are Mamba-2's; positions only where the file asks for them."""

    name = "granitehybrid"
    requires_experts = False
    has_shared = True
    type_names = {32: "1B", 40: "7B.A1B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.has_rope = gguf.get_bool("granitehybrid.rope.scaling.finetuned", False)

    def uses_rope(self, il: int) -> bool:
        """Whether heads are rotated."""
        return self.has_rope


class FalconH1(Mamba2Hybrid):
    """Attention and a Mamba-2 layer read the same normed rows and are added."""

    name = "falcon-h1"
    has_both = True
    may_lack_heads = False
    type_names = {24: "1.5B", 32: "3B", 36: "0.5B", 44: "7B", 66: "1B", 72: "34B"}

    def is_recurrent(self, il: int) -> bool:
        """All are."""
        return True

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The attention's and the mixer's."""
        yield from DenseDecoder.attn_tensors(self, il)
        yield from self.mixer_tensors(il)

    def norm_tensors(self, name: str, n: int) -> Iterator[TensorSpec]:
        """A norm's weight; that before the feed-forward has no suffix."""
        if name.endswith(".ffn_norm"):
            yield TensorSpec(name, (n,))
        else:
            yield from super().norm_tensors(name, n)

    def build_norm(self, g: GraphI, cur: Tensor, name: str, il: int) -> Tensor:
        """A norm by its name."""
        if not name.endswith(".ffn_norm"):
            return super().build_norm(g, cur, name, il)
        return g.build_cb(ops.rms_norm(cur, g.weight(name), self.hparams.f_norm_rms_eps), "ffn_norm", il)

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention plus mixer."""
        mixed = g.build_cb(self.build_mixer(g, cur, il), "ssm_out", il)
        return ops.add(DenseDecoder.build_self_attn(self, g, cur, pos, il), mixed)
