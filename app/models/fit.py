"""Does a model fit into the memory that is free, and what would make it fit?

From what `app.bridge.entries` found out about a model; the picker says it.
"""

from __future__ import annotations

from app.bridge.messages import ContextNeed, ModelEntry

STEP = 256
"""Contexts are offered in steps of this."""


def largest_context(entry: ModelEntry, type_kv: str, free_bytes: int) -> int:
    """The largest context that fits with a cache type; 0 where none does, or nobody has looked.

    Between two contexts that were looked at, the need grows evenly.
    """
    contexts = [context for context in entry.contexts if context.type_kv == type_kv]
    fitting = [context for context in contexts if context.n_bytes <= free_bytes]
    if len(fitting) == len(contexts):
        return contexts[-1].n_ctx if contexts else 0
    above = contexts[len(fitting)]
    below = fitting[-1] if fitting else _at_zero(contexts)
    if above.n_bytes <= below.n_bytes or free_bytes < below.n_bytes:
        return 0
    share = (free_bytes - below.n_bytes) / (above.n_bytes - below.n_bytes)
    return int(below.n_ctx + share * (above.n_ctx - below.n_ctx)) // STEP * STEP


def fitting_types(entry: ModelEntry, free_bytes: int) -> list[tuple[str, int]]:
    """(cache type, largest context) for every type with which the model fits, the usual type first."""
    types = dict.fromkeys(context.type_kv for context in entry.contexts)
    fits = [(type_kv, largest_context(entry, type_kv, free_bytes)) for type_kv in types]
    return [(type_kv, n_ctx) for type_kv, n_ctx in fits if n_ctx]


def _at_zero(contexts: list[ContextNeed]) -> ContextNeed:
    """What no context at all would take, from the two smallest."""
    first = contexts[0]
    if len(contexts) < 2:
        return ContextNeed(first.type_kv, 0, first.n_bytes)
    second = contexts[1]
    slope = (second.n_bytes - first.n_bytes) / (second.n_ctx - first.n_ctx)
    return ContextNeed(first.type_kv, 0, int(first.n_bytes - slope * first.n_ctx))
