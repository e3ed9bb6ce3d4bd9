"""A model's graph from the header of its file alone: no weights, no context."""

from __future__ import annotations

from pathlib import Path

from engine.arch.registry import create_arch
from engine.context.builder import GraphBuilder, Topology
from engine.gguf import open_gguf
from engine.graph.interface import GraphType
from engine.graph.result import graph_text
from engine.graph.tensor import WeightInfo


def graph_text_of_file(path: str | Path, graph_type: GraphType = GraphType.DEFAULT) -> str:
    """The graph as canonical text (see `graph_text`).

    Raises: ModelFileError, UnsupportedArchitectureError.
    """
    with open_gguf(path) as gguf:
        arch = create_arch(gguf)
        infos = {
            spec.name: WeightInfo(spec.used_shape, gguf.tensors[spec.name].type)
            for spec in arch.tensors()
            if spec.required or spec.name in gguf.tensors
        }
        memory = {layer.il: layer for layer in arch.memory_spec(arch.hparams.n_ctx_train)}
        builder = GraphBuilder(
            infos,
            arch.hparams.n_embd,
            Topology(graph_type=graph_type),
            lambda il: int(memory[il].n_swa > 0),
            "a graph without a context",
            lambda il: memory[il].factors if il in memory else "",
        )
        return graph_text(arch.build(builder))
