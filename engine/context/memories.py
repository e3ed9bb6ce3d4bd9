"""From what an architecture asks to be remembered to the memory of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from engine.memory import (
    LayerKV,
    Memory,
    MemoryParams,
    MemorySpec,
    NumpyRopeShift,
    RopeLayer,
    SwaKind,
    create_memory,
)
from engine.types import F32Array

if TYPE_CHECKING:
    from engine.arch.base import LayerMemory
    from engine.context.params import ContextParams
    from engine.model import Model


def make_memory(model: Model, params: ContextParams, n_ctx: int) -> Memory:
    """The memory of a context. Raises: ParamError."""
    layers, states = model.arch.memory_spec(n_ctx), model.arch.state_spec()
    swa = [layer for layer in layers if layer.n_swa > 0]
    kind: Literal["kv", "iswa", "recurrent", "hybrid"] = "iswa" if swa and len(swa) < len(layers) else "kv"
    if states:
        kind = "hybrid" if layers else "recurrent"
    # Which set of frequencies a long-context model uses depends on n_ctx: cells of one mean nothing to the other.
    factors = sorted({layer.factors for layer in layers} & model.weight_infos.keys())
    spec = MemorySpec(
        kind=kind,
        layers=tuple(LayerKV(layer.il, layer.n_head_kv, layer.d_k, layer.d_v) for layer in layers),
        fingerprint=" ".join((model.fingerprint, *factors)),
        rope=NumpyRopeShift({layer.il: _rope_layer(model, layer) for layer in layers}),
        swa_layers=frozenset(layer.il for layer in swa),
        n_swa=max((layer.n_swa for layer in swa), default=0),
        swa_kind=SwaKind[swa[0].swa_kind.upper()] if swa else SwaKind.NONE,
        states=states,
    )
    memory_params = MemoryParams(
        n_ctx=n_ctx,
        n_seq_max=params.n_seq_max,
        kv_bytes_max=params.kv_bytes_max or 0,
        type_k=params.quant_k,
        type_v=params.quant_v,
    )
    return create_memory(spec, memory_params)


def _rope_layer(model: Model, layer: LayerMemory) -> RopeLayer:
    rope = layer.rope
    factors: F32Array | None = None
    if layer.factors and layer.factors in model.weight_infos:
        factors = cast(F32Array, np.asarray(model.weight(layer.factors)))
    return RopeLayer(
        kind=cast(Literal["none", "norm", "neox"], rope.kind),
        n_rot=rope.n_rot,
        freq_base=rope.freq_base,
        freq_scale=rope.freq_scale,
        ext_factor=rope.ext_factor,
        beta_fast=rope.beta_fast,
        beta_slow=rope.beta_slow,
        n_ctx_orig=rope.n_ctx_orig,
        freq_factors=factors,
    )
