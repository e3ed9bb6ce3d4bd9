"""RWKV-6 and RWKV-7: time mix and channel mix in every layer, no attention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.arch.blocks.rwkv import (
    build_rwkv6_channel_mix,
    build_rwkv6_time_mix,
    build_rwkv7_channel_mix,
    build_rwkv7_time_mix,
    rwkv6_tensors,
    rwkv7_tensors,
    rwkv_state,
)
from engine.arch.hybrid import HybridDecoder
from engine.errors import HparamError
from engine.graph import ops

if TYPE_CHECKING:
    from engine.arch.base import TensorSpec
    from engine.gguf import GGUFFile
    from engine.graph.interface import GraphI
    from engine.graph.result import GraphResult
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState


class Rwkv(HybridDecoder):
    """What both have in common."""

    rope_kind = "none"
    norm = "layer"
    has_embd_norm = True

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        key = f"{gguf.architecture}.wkv.head_size"
        self.d_head = gguf.get_int(key, lo=1, hi=4096)
        if self.hparams.n_embd % self.d_head:
            raise HparamError(key, f"{self.d_head} does not divide a width of {self.hparams.n_embd}", gguf.path)

    def is_recurrent(self, il: int) -> bool:
        """All are."""
        return True

    def ffn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The norm; the channel mix's are with the mixer's."""
        return self.norm_tensors(f"blk.{il}.attn_norm_2", self.hparams.n_embd)

    def layer_state(self, il: int) -> LayerState:
        """What both mixes carry along."""
        return rwkv_state(il, self.hparams.n_embd, self.d_head)

    @abstractmethod
    def build_channel_mix(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The channel mix; only the rows that are asked for in the last layer."""

    def rows(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The rows that go on behind layer il."""
        return g.build_out(cur) if il == self.hparams.n_layer - 1 else cur

    def build_layer(self, g: GraphI, inp: Tensor, pos: Tensor, il: int) -> Tensor:
        """Time mix and channel mix, each of normed rows and added."""
        cur = self.build_mixer(g, self.build_norm(g, inp, f"blk.{il}.attn_norm", il), il)
        inp = g.build_cb(ops.add(cur, inp), "ffn_inp", il)
        cur = self.build_channel_mix(g, self.build_norm(g, inp, f"blk.{il}.attn_norm_2", il), il)
        cur = ops.add(cur, self.rows(g, inp, il))
        return g.build_cb(g.build_cvec(self.scale_layer(cur, il), il), "l_out", il)

    def scale_layer(self, cur: Tensor, il: int) -> Tensor:
        """What a family does to a layer's output."""
        return cur


class Rwkv6(Rwkv):
    """Output weights shrink with depth, and so do the rows."""

    name = "rwkv6"
    type_names = {24: "1.6B", 32: "3B", 61: "14B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        self.n_rescale = gguf.get_int("rwkv6.rescale_every_n_layers", 0, lo=0)
        self.n_mix = gguf.get_int("rwkv6.time_mix_extra_dim", 32, lo=1, hi=1 << 16)
        self.n_decay = gguf.get_int("rwkv6.time_decay_extra_dim", 64, lo=1, hi=1 << 16)

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """Those of both mixes."""
        hp = self.hparams
        return rwkv6_tensors(il, hp.n_embd, hp.n_ff[il], self.d_head, self.n_mix, self.n_decay)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The time mix."""
        return build_rwkv6_time_mix(g, cur, il, self.d_head)

    def build_channel_mix(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The channel mix."""
        return build_rwkv6_channel_mix(g, cur, il, lambda x: self.rows(g, x, il))

    def scale_layer(self, cur: Tensor, il: int) -> Tensor:
        """Halved behind every n-th layer."""
        return ops.scale(cur, 0.5) if self.n_rescale and (il + 1) % self.n_rescale == 0 else cur


class Rwkv7(Rwkv):
    """Values of the first layer go into all others."""

    name = "rwkv7"
    type_names = {12: "0.1B", 24: "1.5B", 32: "2.9B"}

    def __init__(self, gguf: GGUFFile) -> None:
        super().__init__(gguf)
        keys = {"w": "decay", "a": "iclr", "v": "value_residual_mix", "g": "gate"}
        self.ranks = {
            part: gguf.get_int(f"rwkv7.attention.{name}_lora_rank", 0, lo=0, hi=1 << 16) for part, name in keys.items()
        }
        self.has_gate = "blk.0.time_mix_g1.weight" in gguf.tensors
        self.first_value: Tensor | None = None

    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """Those of both mixes."""
        return rwkv7_tensors(il, self.hparams.n_embd, self.hparams.n_ff[il], self.ranks, has_gate=self.has_gate)

    def build(self, g: GraphI) -> GraphResult:
        """As every decoder's, with the first layer's values still to come."""
        self.first_value = None
        return super().build(g)

    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The time mix."""
        out, self.first_value = build_rwkv7_time_mix(g, cur, il, self.d_head, self.first_value, has_gate=self.has_gate)
        return out

    def build_channel_mix(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """The channel mix."""
        return build_rwkv7_channel_mix(g, cur, il, lambda x: self.rows(g, x, il))
