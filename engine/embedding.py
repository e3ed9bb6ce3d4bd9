"""Vectors of texts: the pooled hidden rows of an encoder or a decoder.

Stands beside `engine.generate`: where that makes text of a context's logits, this makes vectors of its hidden rows.
"""

from __future__ import annotations

import numpy as np

from engine.batch import Batch
from engine.context.core import Context
from engine.context.encdec import ContextEnc
from engine.context.kinds import create_context
from engine.context.params import ContextParams
from engine.errors import ParamError
from engine.model import Model
from engine.types import F32Array

POOLINGS = {1: "mean", 2: "cls", 3: "last", 4: "rank"}
"""`{arch}.pooling_type` by its GGUF numbers."""
MAX_TOKENS = 1 << 16
N_UBATCH = 512


def pooling_of(model: Model) -> str:
    """The pooling that a model's file asks for, else "mean"."""
    return POOLINGS.get(model.gguf.get_int(f"{model.arch.name}.pooling_type", 1), "mean")


class Embedder:
    """Makes vectors with one model, one text at a time.

    Args:
        model: stays open as long as this is used.
        pooling: "mean", "cls", "last", or "rank": the scores of a classification head; None: what the file asks for.

    Attributes:
        n_tokens_max: tokens that a text may have.

    Thread: one at a time.
    """

    def __init__(self, model: Model, pooling: str | None = None) -> None:
        self._model, self.pooling = model, pooling or pooling_of(model)
        self.n_tokens_max = min(model.n_ctx_train, MAX_TOKENS)
        self._is_encoder = model.arch.is_encoder or model.arch.has_encoder
        self._ctx: Context | None = None

    def embed(self, tokens: list[int], normalise: bool = True) -> F32Array:
        """The vector of a text: f32[n_embd], of length 1 unless it is not to be normalised; or its scores as they are.

        Raises: ParamError: no tokens, more than the model was trained on, or "rank" without a classification head.
        """
        if not 1 <= len(tokens) <= self.n_tokens_max:
            raise ParamError(f"the text has {len(tokens)} tokens; the model takes 1 to {self.n_tokens_max}")
        ctx = self._context(len(tokens))
        batch = Batch.from_tokens(tokens, logits="all" if self.pooling != "last" else "last")
        if self._is_encoder:
            ctx.encode(batch)
        else:
            ctx.get_kv_self().clear()
            ctx.decode(batch)
        vector = ctx.get_embeddings_seq(0).copy()
        return vector / max(float(np.linalg.norm(vector)), 1e-12) if normalise and self.pooling != "rank" else vector

    def _context(self, n_tokens: int) -> Context:
        """A context for texts of n_tokens: one that grows, since buffers for the longest possible may be large."""
        if self._ctx is None or self._ctx.n_batch() < n_tokens:
            self.close()
            n = min(max(n_tokens, N_UBATCH), self.n_tokens_max)
            # An encoder sees all of a text at once.
            n_ubatch = n if self._is_encoder else N_UBATCH
            params = ContextParams(n_ctx=n, n_batch=n, n_ubatch=n_ubatch, embeddings=True, pooling=self.pooling)
            make = ContextEnc if self._is_encoder else create_context
            self._ctx = make(self._model, params)
        return self._ctx

    def close(self) -> None:
        """Let go of the context."""
        if self._ctx is not None:
            self._ctx.close()
        self._ctx = None
