"""What a kind of context is, as a record; `engine.context.kinds` has the kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.graph.interface import GraphType

if TYPE_CHECKING:
    from engine.context.params import ContextParams
    from engine.memory import Memory
    from engine.model import Model


@dataclass(frozen=True, slots=True)
class ContextKind:
    """What makes one sort of context differ from another.

    Attributes:
        name: for error messages.
        graph_type: the graph it runs.
        make_memory: makes the memory for a model, parameters and n_ctx.
        keeps_memory: cells outlive a decode.
        encodes: it computes hidden rows in both directions (`encode`) instead of logits (`decode`).
        stores_source: what it encodes becomes the source of a decoder's sequences.
    """

    name: str
    graph_type: GraphType
    make_memory: Callable[[Model, ContextParams, int], Memory]
    keeps_memory: bool
    encodes: bool = False
    stores_source: bool = False
