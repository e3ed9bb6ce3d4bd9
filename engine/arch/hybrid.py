"""The decoder in which some layers, or all, have a recurrence in place of attention."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from engine.arch.decoder import DenseDecoder

if TYPE_CHECKING:
    from engine.arch.base import LayerMemory, TensorSpec
    from engine.graph.interface import GraphI
    from engine.graph.tensor import Tensor
    from engine.memory.base import LayerState


class HybridDecoder(DenseDecoder):
    """A decoder with recurrent layers. A family says which those are, and what their mixer is.

    Attributes:
        has_both: every layer has heads and a recurrence; a family that has this combines them itself.
    """

    may_lack_heads = True
    has_both: ClassVar[bool] = False

    def is_recurrent(self, il: int) -> bool:
        """Whether a layer has a recurrence: those without key heads."""
        return self.hparams.n_head_kv[il] == 0

    @abstractmethod
    def mixer_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The tensors of a recurrent layer's mixer, without its norms."""

    @abstractmethod
    def build_mixer(self, g: GraphI, cur: Tensor, il: int) -> Tensor:
        """A recurrent layer's mixer: f32[n_tokens, n_embd], normed -> f32[n_tokens, n_embd]."""

    @abstractmethod
    def layer_state(self, il: int) -> LayerState:
        """What a recurrent layer carries along."""

    def attn_tensors(self, il: int) -> Iterator[TensorSpec]:
        """The attention's tensors, or the mixer's with the same norms."""
        if not self.is_recurrent(il):
            yield from super().attn_tensors(il)
            return
        for name in (self.attn_norm, self.attn_post_norm):
            yield from self.norm_tensors(name and f"blk.{il}.{name}", self.hparams.n_embd)
        yield from self.mixer_tensors(il)

    def build_self_attn(self, g: GraphI, cur: Tensor, pos: Tensor, il: int) -> Tensor:
        """Attention, or the mixer."""
        if not self.is_recurrent(il):
            return super().build_self_attn(g, cur, pos, il)
        return g.build_cb(self.build_mixer(g, cur, il), "mixer_out", il)

    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of the layers that have heads."""
        layers = range(self.hparams.n_layer)
        return tuple(self.layer_memory(il, n_ctx) for il in layers if self.has_both or not self.is_recurrent(il))

    def state_spec(self) -> tuple[LayerState, ...]:
        """The recurrent layers'."""
        return tuple(self.layer_state(il) for il in range(self.hparams.n_layer) if self.is_recurrent(il))
