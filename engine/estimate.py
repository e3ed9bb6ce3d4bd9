"""What a model will take and give before it is loaded: memory by part, the largest context that fits, tokens a second.

Stands beside `engine.generate`. Nothing here guesses at sizes: the model is planned (`load_model(plan_only=True)`), so
that its graph is compiled as for a decode, with weights that nobody reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from cext.weights import weight_bytes
from engine.backend.threads import default_threads
from engine.context.kinds import create_context
from engine.context.params import CACHE_TYPES, ContextParams
from engine.errors import ParamError
from engine.hparams import read_experts
from engine.model import Model
from engine.weights import is_matrix

VOCAB_BYTES = 100
"""Of the tokenizer, for each token: measured from 67 (SPM, 262,144 tokens) to 123 (BPE, 49,152)."""
BASE_BYTES = 3 << 20
"""Of everything small: objects, stacks, the allocator's own."""
RATE_SAMPLE = 4 << 20
"""Values that each thread reads: more than caches hold."""
SHARE_OF_RATE = 0.6
"""Of the rate at which memory can be read, what the products reach: measured on three models of 0.1 to 0.5 billion."""
STEP = 256
"""Contexts that are offered are a multiple of this."""
DRAFT_TYPES = ("q8_0", "q4_0")
"""Cache types that are offered to save memory, by how little they lose."""


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Memory that a model takes with a full context, in bytes.

    Attributes:
        weights: of the packed matrices; what stays mapped from the file can be let go and is not counted.
        cache: of keys, values and states.
        compute: of buffers, logits and threads.
        rest: of the tokenizer and everything small.
    """

    weights: int
    cache: int
    compute: int
    rest: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.compute + self.rest


def memory_need(model: Model, params: ContextParams) -> MemoryNeed:
    """What a model takes with these parameters, for one sequence that fills the context.

    Args:
        model: planned or loaded.

    Raises: ParamError: parameters that do not fit the model.
    """
    ctx = create_context(model, params)
    try:
        hp = model.hparams
        vectors = sum(4 * t.n_elements for t in model.gguf.tensors.values() if len(t.shape) == 1)
        return MemoryNeed(
            weights=model.weights_bytes + vectors,
            cache=ctx.memory_bytes(),
            compute=ctx.compute_bytes() + 8 * hp.n_vocab,
            rest=BASE_BYTES + VOCAB_BYTES * hp.n_vocab,
        )
    finally:
        ctx.close()


def largest_context(model: Model, params: ContextParams, free_bytes: int) -> int:
    """The largest context that fits into free memory, at most what the model was trained on; 0: none does."""
    n_max = model.n_ctx_train

    def fits(n_ctx: int) -> bool:
        return memory_need(model, replace(params, n_ctx=n_ctx)).total <= free_bytes

    if fits(n_max):
        return n_max
    lo, hi = 0, n_max // STEP  # lo steps fit, hi do not
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if fits(middle * STEP) else (lo, middle)
    return lo * STEP


def active_bytes(model: Model) -> int:
    """Bytes of weights that computing one token reads: of experts, only those in use."""
    _, n_used = read_experts(model.gguf)
    is_tied = "output.weight" not in model.weight_infos
    n_bytes = 0
    for name, info in model.weight_infos.items():
        if not is_matrix(name, info.shape) or (name == "token_embd.weight" and not is_tied):
            continue
        size = weight_bytes(int(info.quant), *info.shape[-2:])
        n_bytes += size * (n_used or info.shape[0] if len(info.shape) == 3 else 1)
    return n_bytes


def read_rate(n_threads: int | None = None) -> float:
    """Bytes a second that threads read from this machine's memory together, measured in some hundredths of a second."""
    n_threads = n_threads or default_threads()
    arrays = [np.ones(RATE_SAMPLE, dtype=np.float32) for _ in range(n_threads)]
    best_s = float("inf")
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(3):
            began = time.perf_counter()
            list(pool.map(np.sum, arrays))
            best_s = min(best_s, time.perf_counter() - began)
    return n_threads * arrays[0].nbytes / best_s


def expected_tok_s(n_active_bytes: int, read_bytes_s: float) -> float:
    """Tokens a second to expect of one chat: weights are read once for each token, and little else takes time."""
    return SHARE_OF_RATE * read_bytes_s / n_active_bytes if n_active_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Remedy:
    """What would make a model fit.

    Attributes:
        n_ctx: a context that fits with cache type `type_kv`; 0: none does, only a smaller model or quantisation helps.
    """

    n_ctx: int
    type_kv: str


def remedies(model: Model, params: ContextParams, free_bytes: int) -> Sequence[Remedy]:
    """Ways to make a model fit, those that change least first: a smaller cache type, or a smaller context."""
    found = []
    for type_kv in (params.type_k, *(t for t in DRAFT_TYPES if t != params.type_k and t in CACHE_TYPES)):
        try:
            n_ctx = largest_context(model, replace(params, type_k=type_kv, type_v=type_kv), free_bytes)
        except ParamError:  # the head size forbids the type
            continue
        wanted = params.n_ctx or model.n_ctx_train
        if n_ctx:
            found.append(Remedy(min(n_ctx, wanted), type_kv))
    return sorted(found, key=lambda remedy: -remedy.n_ctx)
