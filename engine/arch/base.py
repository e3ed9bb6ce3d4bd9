"""`Arch`: what a model family is. One class per architecture holds its parameters, tensors, graph and memory.

An architecture's file is read from top to bottom: parameters, tensors, graph, memory, size label. Nothing else in the
engine tests for an architecture's name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from engine.graph.interface import GraphI
from engine.graph.result import GraphResult
from engine.graph.tensor import RopeSpec
from engine.memory.base import LayerState

if TYPE_CHECKING:
    from engine.gguf import GGUFFile
    from engine.hparams import HParams


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor that an architecture uses.

    Attributes:
        name: GGUF name.
        shape: slowest axis first.
        required: False where a file may lack it.
        flat: its values are used as one vector, however many axes they have in the file.
        mapped: only rows of it are looked up, so that it stays in the file.
        as_matrix: it multiplies as a matrix whose rows run over all axes but the first.
    """

    name: str
    shape: tuple[int, ...]
    required: bool = True
    flat: bool = False
    mapped: bool = False
    as_matrix: bool = False

    @property
    def used_shape(self) -> tuple[int, ...]:
        """The shape that the graph sees."""
        if self.as_matrix:
            return self.shape[0], math.prod(self.shape[1:])
        return (math.prod(self.shape),) if self.flat else self.shape


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """What one layer needs the memory to keep.

    Attributes:
        il: layer.
        n_head_kv, d_k, d_v: its key and value heads.
        rope: how its keys are rotated (for shifts).
        factors: name of the tensor f32[n_rot / 2] that divides its frequencies, or "".
        swa_kind, n_swa: its sliding window ("none", 0 without one).
        v_in_k: a value is the last d_v dims of its key, so that the key alone need be kept.
    """

    il: int
    n_head_kv: int
    d_k: int
    d_v: int
    rope: RopeSpec
    factors: str = ""
    swa_kind: str = "none"
    n_swa: int = 0
    v_in_k: bool = False


class Arch(ABC):
    """A model family.

    Attributes:
        name: `general.architecture`.
        is_encoder: its tokens see each other in both directions and it has no logits.
        has_encoder: it has an encoder beside its decoder, which sees what the encoder made of a source.
        decoder_start_token_id: what such a decoder begins with.
        hparams: the common parameters.
        n_cls_out: scores of a classification head (pooling "rank"); 0 without one.
    """

    name: ClassVar[str]
    is_encoder: ClassVar[bool] = False
    has_encoder: ClassVar[bool] = False
    decoder_start_token_id: int = 0
    hparams: HParams
    n_cls_out: int = 0

    @abstractmethod
    def __init__(self, gguf: GGUFFile) -> None:
        """Read the parameters. Raises: HparamError."""

    @abstractmethod
    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the model, in the order of use."""

    @abstractmethod
    def build(self, g: GraphI) -> GraphResult:
        """Build the graph of g's type."""

    @abstractmethod
    def memory_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """What each layer needs the memory to keep, for sequences of n_ctx positions."""

    def encoder_spec(self, n_ctx: int) -> tuple[LayerMemory, ...]:
        """Keys and values of each layer of the encoder, which it needs while it computes."""
        return self.memory_spec(n_ctx)

    def cross_spec(self) -> tuple[LayerMemory, ...]:
        """What each layer that looks at a source needs of it; none for a model without an encoder beside the decoder."""
        return ()

    def state_spec(self) -> tuple[LayerState, ...]:
        """What each recurrent layer carries along, in f32 values; none for a model without recurrences."""
        return ()

    def type_name(self) -> str:
        """The family's own size label ("1B"), or ""."""
        return ""
