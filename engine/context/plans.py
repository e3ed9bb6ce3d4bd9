"""The compiled graphs of a context, one for each topology.

Between `engine.context.core`, which says what is to be computed, and the backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cext.executor import Program
from engine.backend.cpu.lower import Lowering
from engine.backend.cpu.stages import CacheLayout, NodePlace, Weight
from engine.context.builder import GraphBuilder, Topology

if TYPE_CHECKING:
    from engine.context.adapting import ActiveAdapters
    from engine.memory import Memory
    from engine.model import Model

PLANS_KEPT = 16
"""Every scale of an adapter makes another plan; the oldest goes."""

Plan = tuple[Program, tuple[NodePlace, ...]]
"""A program, and where its nodes lie where they are to be shown."""


class Plans:
    """Compiles graphs when they are first asked for."""

    def __init__(self, model: Model, kind: str, n_ctx: int, n_ubatch: int) -> None:
        self._model, self._kind, self._n_ctx, self._n_ubatch = model, kind, n_ctx, n_ubatch
        self._plans: dict[Topology, Plan] = {}

    def builder(self, topology: Topology, adapters: ActiveAdapters, memory: Memory | None) -> GraphBuilder:
        """A builder for that graph; without a memory it is good for looking at the graph only."""
        arch = self._model.arch
        infos = {**self._model.weight_infos, **adapters.infos()}
        factors = {layer.il: layer.factors for layer in arch.memory_spec(self._n_ctx)}
        cache_of = memory.cache_of if memory is not None else lambda il: 0
        return GraphBuilder(infos, arch.hparams.n_embd, topology, cache_of, self._kind, lambda il: factors.get(il, ""))

    def get(self, topology: Topology, adapters: ActiveAdapters, memory: Memory) -> Plan:
        """The plan of a topology. Raises: UnsupportedQuantError."""
        plan = self._plans.get(topology)
        if plan is None:
            while len(self._plans) >= PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            plan = self._plans[topology] = self._compile(topology, adapters, memory)
        return plan

    def _compile(self, topology: Topology, adapters: ActiveAdapters, memory: Memory) -> Plan:
        def weight(name: str) -> Weight:
            extra = adapters.weight(name)
            return self._model.weight(name) if extra is None else extra

        def layout(cache: int, il: int) -> CacheLayout:
            return CacheLayout(*memory.kv_offsets(il), *memory.kv_types(il), memory.v_in_k)

        result = self._model.arch.build(self.builder(topology, adapters, memory))
        lowering = Lowering(
            result, weight, layout, self._n_ubatch, self._n_ctx, memory.state_offsets, keep_nodes=topology.trace
        )
        return lowering.lower(), lowering.node_places() if topology.trace else ()

    def stage_ns(self) -> dict[str, tuple[int, int, int]]:
        """For profiles: nanoseconds in row work, products and attention, of each plan."""
        return {str(i): program.stage_ns for i, (program, _) in enumerate(self._plans.values())}

    def clear(self) -> None:
        """Let go of all plans."""
        self._plans.clear()
