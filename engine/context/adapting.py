"""The adapters that are active in a context: what they add to the graph, and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from engine.backend.cpu.stages import Weight
from engine.context.builder import LoraPair
from engine.errors import AdapterError, ParamError
from engine.graph.tensor import WeightInfo
from engine.types import QuantType

if TYPE_CHECKING:
    from engine.adapters import ControlVector, LoraAdapter


class ActiveAdapters:
    """LoRA adapters with their scales, and one control vector."""

    def __init__(self) -> None:
        self._loras: dict[LoraAdapter, float] = {}
        self._cvec_infos: dict[str, WeightInfo] = {}
        self._cvec: tuple[tuple[int, tuple[str, ...]], ...] = ()
        self._weights: dict[str, Weight] = {}

    def copy(self) -> ActiveAdapters:
        """The same adapters, to be changed apart."""
        twin = ActiveAdapters()
        twin._loras, twin._weights = dict(self._loras), dict(self._weights)
        twin._cvec_infos, twin._cvec = dict(self._cvec_infos), self._cvec
        return twin

    def set_lora(self, adapter: LoraAdapter, scale: float) -> None:
        """Use an adapter with a scale."""
        self._loras[adapter] = float(scale)
        self._weights.update(adapter.weights)

    def remove_lora(self, adapter: LoraAdapter) -> bool:
        """Stop using an adapter; False where it was not in use."""
        for name in adapter.weights if adapter in self._loras else ():
            del self._weights[name]
        return self._loras.pop(adapter, None) is not None

    def clear_loras(self) -> None:
        """Stop using all adapters."""
        for adapter in list(self._loras):
            self.remove_lora(adapter)

    def set_cvec(self, vector: ControlVector | None, scale: float, first: int, last: int) -> None:
        """Add a control vector's directions to the outputs of layers first to last; None: none.

        Raises: ParamError: it has no direction for these layers.
        """
        if vector is not None and not any(first <= il <= last for il in vector.directions):
            raise ParamError(
                f"layers {first} to {last}: the control vector has directions for {sorted(vector.directions)}"
            )
        for name in self._cvec_infos:
            del self._weights[name]
        self._cvec_infos.clear()
        layers: list[tuple[int, tuple[str, ...]]] = []
        for il, direction in sorted(vector.directions.items()) if vector is not None else ():
            if first <= il <= last:
                name = f"cvec {vector.digest if vector else ''}*{scale!r} {il}"
                self._weights[name] = np.ascontiguousarray(direction * np.float32(scale))
                self._cvec_infos[name] = WeightInfo((len(direction),), QuantType.F32)
                layers.append((il, (name,)))
        self._cvec = tuple(layers)

    def check_shapes(self, weights: Mapping[str, WeightInfo], n_embd: int) -> None:
        """Whether the adapters fit a model. Raises: AdapterError: one was loaded for another model."""
        for adapter in self._loras:
            for base, (a, b, _) in adapter.pairs.items():
                shape = (adapter.infos[b].shape[0], adapter.infos[a].shape[1])
                if base not in weights or weights[base].shape != shape:
                    raise AdapterError(f"{adapter.path}: made for another model: its '{base}' is {shape}")
        if any(info.shape != (n_embd,) for info in self._cvec_infos.values()):
            raise AdapterError(f"the control vector was made for another model; this one has n_embd {n_embd}")

    @property
    def lora_pairs(self) -> tuple[tuple[str, tuple[LoraPair, ...]], ...]:
        """The active pairs by weight. Source: arXiv:2106.09685 (scale times alpha over rank)."""
        pairs: dict[str, list[LoraPair]] = {}
        for adapter, scale in self._loras.items():
            for base, (a, b, rank) in adapter.pairs.items():
                effective = scale * adapter.alpha / rank if adapter.alpha else scale
                pairs.setdefault(base, []).append(LoraPair(a, b, effective))
        return tuple((base, tuple(p)) for base, p in sorted(pairs.items()))

    @property
    def cvec(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Names of the control vectors by layer."""
        return self._cvec

    def infos(self) -> dict[str, WeightInfo]:
        """What the graph needs to know of the adapters' weights."""
        infos = dict(self._cvec_infos)
        for adapter in self._loras:
            infos.update(adapter.infos)
        return infos

    def weight(self, name: str) -> Weight | None:
        """An adapter's weight, or None."""
        return self._weights.get(name)

    def signature(self) -> str:
        """A text that differs where active adapters make other numbers."""
        loras = sorted(f"lora {a.digest}*{s!r}" for a, s in self._loras.items() if s != 0.0)
        return ";".join([*loras, *(name for _, names in self._cvec for name in names)])
