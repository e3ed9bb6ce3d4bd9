"""The `kv_self_*` functions: what a context remembers, by the field's own names.

Each acts on the memory that is attached to the context, `ctx.get_kv_self()`, and raises what that raises.
"""

from __future__ import annotations

from typing import Protocol

from engine.errors import UnsupportedCallError
from engine.memory.base import Memory
from engine.memory.encdec import EncDecMemory
from engine.memory.hybrid import HybridMemory
from engine.memory.kv import KVCache
from engine.memory.kv_view import KVCacheView


class HasMemory(Protocol):
    """A context with a memory of its own."""

    def get_kv_self(self) -> Memory:
        """The attached memory. Raises: UnsupportedCallError: there is none."""

    def n_batch(self) -> int:
        """Tokens of a batch at most."""


def kv_self_clear(ctx: HasMemory) -> None:
    """Forget all sequences."""
    ctx.get_kv_self().clear(data=True)


def kv_self_n_tokens(ctx: HasMemory) -> int:
    """Cells of all sequences, one that two share counted twice."""
    return ctx.get_kv_self().stats().n_tokens


def kv_self_used_cells(ctx: HasMemory) -> int:
    """Cells in use, one that two sequences share counted once."""
    return ctx.get_kv_self().stats().used_cells


def kv_self_seq_rm(ctx: HasMemory, seq_id: int, p0: int, p1: int) -> bool:
    """Remove positions [p0, p1) of a sequence, or of all for seq_id < 0; False: cannot, nothing changed."""
    return ctx.get_kv_self().seq_rm(seq_id, p0, p1)


def kv_self_seq_cp(ctx: HasMemory, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
    """Make positions [p0, p1) of one sequence what they are in another, sharing cells."""
    ctx.get_kv_self().seq_cp(seq_id_src, seq_id_dst, p0, p1)


def kv_self_seq_keep(ctx: HasMemory, seq_id: int) -> None:
    """Forget every other sequence."""
    ctx.get_kv_self().seq_keep(seq_id)


def kv_self_seq_add(ctx: HasMemory, seq_id: int, p0: int, p1: int, delta: int) -> None:
    """Move positions [p0, p1) by delta."""
    ctx.get_kv_self().seq_add(seq_id, p0, p1, delta)


def kv_self_seq_div(ctx: HasMemory, seq_id: int, p0: int, p1: int, divisor: int) -> None:
    """Divide positions [p0, p1), rounding down."""
    ctx.get_kv_self().seq_div(seq_id, p0, p1, divisor)


def kv_self_seq_pos_min(ctx: HasMemory, seq_id: int) -> int:
    """The oldest position that all layers still have, or -1."""
    return ctx.get_kv_self().seq_pos_min(seq_id)


def kv_self_seq_pos_max(ctx: HasMemory, seq_id: int) -> int:
    """The newest position, or -1."""
    return ctx.get_kv_self().seq_pos_max(seq_id)


def kv_self_defrag(ctx: HasMemory) -> None:
    """Compact by sequence and position at the next decode or update."""
    ctx.get_kv_self().defrag()


def kv_self_can_shift(ctx: HasMemory) -> bool:
    """Whether `kv_self_seq_add` works."""
    return ctx.get_kv_self().caps.shift


def kv_self_update(ctx: HasMemory) -> bool:
    """Carry out pending work, fold shifts into K and make room for n_batch tokens: whether there was work."""
    return ctx.get_kv_self().update(ctx.n_batch())


def kv_self_view(ctx: HasMemory) -> KVCacheView:
    """A picture of the cache. Raises: UnsupportedCallError: the memory has no cells of keys and values."""
    memory = ctx.get_kv_self()
    cache = memory.cache if isinstance(memory, (EncDecMemory, HybridMemory)) else memory
    if not isinstance(cache, KVCache):
        raise UnsupportedCallError("kv_self_view", type(memory).__name__)
    return KVCacheView.of(cache)
