"""A model's graph from the header of its file alone: no weights, no context."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.arch.base import TensorSpec
from engine.arch.registry import create_arch
from engine.arch.vision.registry import create_vision_arch, is_vision
from engine.context.builder import GraphBuilder, Topology
from engine.context.vision import build_vision_graph
from engine.gguf import GGUFFile, open_gguf
from engine.graph.interface import GraphType
from engine.graph.result import graph_text
from engine.graph.tensor import WeightInfo
from engine.weights import check_tensors

if TYPE_CHECKING:
    from engine.arch.base import Arch


def graph_text_of_file(path: str | Path, graph_type: GraphType = GraphType.DEFAULT) -> str:
    """The graph of a model, or of a vision tower, as canonical text (see `graph_text`); of an encoder-decoder both its
    graphs, an empty line between them.

    Raises: ModelFileError, UnsupportedArchitectureError.
    """
    with open_gguf(path) as gguf:
        if is_vision(gguf):
            tower = create_vision_arch(gguf)
            return graph_text(build_vision_graph(tower, _infos(gguf, tower.tensors())))
        arch = create_arch(gguf)
        infos = _infos(gguf, arch.tensors())
        both = arch.has_encoder and graph_type is GraphType.DEFAULT
        types = (GraphType.ENCODER, GraphType.DECODER) if both else (graph_type,)
        return "\n".join(_graph_text(arch, infos, of_type) for of_type in types)


def _graph_text(arch: Arch, infos: dict[str, WeightInfo], graph_type: GraphType) -> str:
    n_ctx = arch.hparams.n_ctx_train
    own = arch.encoder_spec(n_ctx) if graph_type is GraphType.ENCODER else arch.memory_spec(n_ctx)
    memory = {layer.il: layer for layer in own}
    builder = GraphBuilder(
        infos,
        arch.hparams.n_embd,
        Topology(graph_type=graph_type, stores_source=True),
        lambda il: int(il not in memory or memory[il].n_swa > 0),
        "a graph without a context",
        lambda il: memory[il].factors if il in memory else "",
    )
    return graph_text(arch.build(builder))


def _infos(gguf: GGUFFile, specs: Iterable[TensorSpec]) -> dict[str, WeightInfo]:
    """Shape and type of every tensor that a model uses. Raises: ModelFileError kinds."""
    return {name: WeightInfo(info.shape, info.type) for name, info in check_tensors(gguf, specs).items()}
