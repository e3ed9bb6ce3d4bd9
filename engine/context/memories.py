"""From what an architecture asks to be remembered to the memory of a context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from engine.memory import (
    EncDecMemory,
    EncoderMemory,
    LayerKV,
    LayerState,
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
    spec = _make_spec(model, model.arch.memory_spec(n_ctx), model.arch.state_spec())
    return create_memory(spec, _make_params(params, n_ctx))


def make_decoder_memory(model: Model, params: ContextParams, n_ctx: int) -> EncDecMemory:
    """The memory of an encoder-decoder's decoder: its cells, and the sources. Raises: ParamError."""
    spec = _make_spec(model, model.arch.memory_spec(n_ctx), ())
    source = _make_spec(model, model.arch.cross_spec(), ())
    return EncDecMemory.create(spec, source, _make_params(params, n_ctx))


def make_encoder_memory(model: Model, params: ContextParams, n_ctx: int) -> Memory:
    """The memory of an encoder, which forgets after each encode. Raises: ParamError."""
    if not model.arch.has_encoder:
        return make_memory(model, params, n_ctx)
    spec = _make_spec(model, model.arch.encoder_spec(n_ctx), ())
    return EncoderMemory.create(spec, _make_params(params, n_ctx))


def _make_spec(model: Model, layers: tuple[LayerMemory, ...], states: tuple[LayerState, ...]) -> MemorySpec:
    swa = [layer for layer in layers if layer.n_swa > 0]
    kind: Literal["kv", "iswa", "mla", "recurrent", "hybrid"] = "iswa" if swa and len(swa) < len(layers) else "kv"
    if any(layer.v_in_k for layer in layers):
        kind = "mla"
    if states:
        kind = "hybrid" if layers else "recurrent"
    # Which set of frequencies a long-context model uses depends on n_ctx: cells of one mean nothing to the other.
    factors = sorted({layer.factors for layer in layers} & model.weight_infos.keys())
    return MemorySpec(
        kind=kind,
        layers=tuple(_layer_kv(layer) for layer in layers),
        fingerprint=" ".join((model.fingerprint, *factors)),
        rope=NumpyRopeShift({layer.il: _rope_layer(model, layer) for layer in layers}),
        swa_layers=frozenset(layer.il for layer in swa),
        n_swa=max((layer.n_swa for layer in swa), default=0),
        swa_kind=SwaKind[swa[0].swa_kind.upper()] if swa else SwaKind.NONE,
        states=states,
    )


def _layer_kv(layer: LayerMemory) -> LayerKV:
    own, latent = (0, layer.d_v) if layer.v_in_k else (layer.d_v, 0)
    return LayerKV(layer.il, layer.n_head_kv, layer.d_k, own, latent)


def _make_params(params: ContextParams, n_ctx: int) -> MemoryParams:
    return MemoryParams(
        n_ctx=n_ctx,
        n_seq_max=params.n_seq_max,
        kv_bytes_max=params.kv_bytes_max or 0,
        type_k=params.quant_k,
        type_v=params.quant_v,
        swa_full=params.swa_full,
    )


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
