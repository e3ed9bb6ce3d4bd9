"""The kinds of context, each a record: what graph it runs, what memory it makes, whether that memory is kept.

Those with an encoder are in `engine.context.encdec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.context.core import Context
from engine.context.encdec import ContextEnc, ContextEncDec
from engine.context.kind import ContextKind
from engine.context.memories import make_memory
from engine.context.params import ContextParams
from engine.errors import ParamError
from engine.graph.interface import GraphType

if TYPE_CHECKING:
    from engine.model import Model


KV_SELF = ContextKind("ContextKVSelf", GraphType.DEFAULT, make_memory, keeps_memory=True)
KV_SELF_MLA = ContextKind("ContextKVSelfMLA", GraphType.DEFAULT, make_memory, keeps_memory=True)
RECURRENT = ContextKind("ContextRecurrent", GraphType.DEFAULT, make_memory, keeps_memory=True)
HYBRID = ContextKind("ContextHybrid", GraphType.DEFAULT, make_memory, keeps_memory=True)
BASE = ContextKind("ContextBase", GraphType.DEFAULT, make_memory, keeps_memory=False)


class ContextKVSelf(Context):
    """A decoder's context with its own cache of keys and values."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, _checked(KV_SELF, model, params))


class ContextKVSelfMLA(Context):
    """A decoder's context with a cache of latents, from which its attention takes keys and values alike."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, _checked(KV_SELF_MLA, model, params))


class ContextRecurrent(Context):
    """A recurrent decoder's context: a state for each sequence instead of cells."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, _checked(RECURRENT, model, params))


class ContextHybrid(Context):
    """The context of a decoder with attention and recurrent layers: cells and a state for each sequence."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, _checked(HYBRID, model, params))


class ContextBase(Context):
    """A decoder's context without a cache: every decode stands alone, from position 0 or wherever it says."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params.scratch(), BASE)


def create_context(model: Model, params: ContextParams | None = None) -> Context:
    """The context that fits the model.

    Raises: ParamError: parameters out of range, or a cache type that the head sizes forbid.
    """
    params = params or ContextParams()
    if model.arch.has_encoder:
        return ContextEncDec(model, params)
    if model.arch.is_encoder:
        return ContextEnc(model, params)
    return _DECODERS[_decoder_kind(model, params)](model, params)


_DECODERS: dict[ContextKind, Callable[[Model, ContextParams], Context]] = {
    KV_SELF: ContextKVSelf,
    KV_SELF_MLA: ContextKVSelfMLA,
    RECURRENT: ContextRecurrent,
    HYBRID: ContextHybrid,
}


def _decoder_kind(model: Model, params: ContextParams) -> ContextKind:
    """What a decoder needs, by what its layers keep."""
    layers = model.arch.memory_spec(params.n_ctx or model.n_ctx_train)
    if model.arch.state_spec():
        return HYBRID if layers else RECURRENT
    return KV_SELF_MLA if any(layer.v_in_k for layer in layers) else KV_SELF


def _checked(kind: ContextKind, model: Model, params: ContextParams) -> ContextKind:
    """The kind, where it is the model's. Raises: ParamError."""
    arch = model.arch
    if arch.is_encoder or arch.has_encoder or _decoder_kind(model, params) is not kind:
        raise ParamError(f"{kind.name} is no context for {arch.name}; create_context makes the one that fits")
    return kind
