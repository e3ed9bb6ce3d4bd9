"""The kinds of context, each a record: what graph it runs, what memory it makes, whether that memory is kept.

Those with an encoder are in `engine.context.encdec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.context.core import Context
from engine.context.encdec import ContextEnc, ContextEncDec
from engine.context.kind import ContextKind
from engine.context.memories import make_memory
from engine.context.params import ContextParams
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
        super().__init__(model, params, KV_SELF)


class ContextKVSelfMLA(Context):
    """A decoder's context with a cache of latents, from which its attention takes keys and values alike."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, KV_SELF_MLA)


class ContextRecurrent(Context):
    """A recurrent decoder's context: a state for each sequence instead of cells."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, RECURRENT)


class ContextHybrid(Context):
    """The context of a decoder with attention and recurrent layers: cells and a state for each sequence."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, HYBRID)


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
    layers = model.arch.memory_spec(params.n_ctx or model.n_ctx_train)
    if model.arch.state_spec():
        return ContextHybrid(model, params) if layers else ContextRecurrent(model, params)
    return (ContextKVSelfMLA if any(layer.v_in_k for layer in layers) else ContextKVSelf)(model, params)
