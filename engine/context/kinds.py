"""The kinds of context, each a record: what graph it runs, what memory it makes, whether that memory is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine.context.core import Context
from engine.context.kind import ContextKind
from engine.context.memories import make_memory, make_scratch_memory
from engine.context.params import ContextParams
from engine.graph.interface import GraphType

if TYPE_CHECKING:
    from engine.model import Model


KV_SELF = ContextKind("ContextKVSelf", GraphType.DEFAULT, make_memory, keeps_memory=True)
BASE = ContextKind("ContextBase", GraphType.DEFAULT, make_scratch_memory, keeps_memory=False)
ENC = ContextKind("ContextEnc", GraphType.ENCODER, make_scratch_memory, keeps_memory=False, encodes=True)


class ContextKVSelf(Context):
    """A decoder's context with its own cache of keys and values."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, KV_SELF)


class ContextBase(Context):
    """A decoder's context without a cache: every decode stands alone, from position 0 or wherever it says."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, params, BASE)


class ContextEnc(Context):
    """An encoder's context: every encode stands alone and gives a hidden row for each token, pooled as asked for."""

    def __init__(self, model: Model, params: ContextParams) -> None:
        super().__init__(model, replace(params, embeddings=True), ENC)


def create_context(model: Model, params: ContextParams | None = None) -> Context:
    """The context that fits the model.

    Raises: ParamError: parameters out of range, or a cache type that the head sizes forbid.
    """
    params = params or ContextParams()
    return ContextEnc(model, params) if model.arch.is_encoder else ContextKVSelf(model, params)
