"""`KVCache`: keys and values of every token, for attention. What its kinds share: everything but which cells must stay.

All stores of a cache have the same sequences; an operation is worked out on all of them first, looked at, then
installed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from cext.pages import PageBudget, PagePool, PageSet
from engine.batch import UBatch
from engine.errors import BatchError, ContextFullError, OutOfMemoryError, ParamError, UnsupportedCallError
from engine.io import BlockReader, BlockWriter
from engine.memory.base import (
    LayerKV,
    MemoryCaps,
    MemoryParams,
    MemorySpec,
    MemoryStats,
    Placement,
    StagedLoad,
    Tx,
)
from engine.memory.cells import SeqRuns
from engine.memory.checked import CheckedMemory
from engine.memory.images import inside
from engine.memory.kv_fold import compact, fold
from engine.memory.kv_state import load_stores, save_stores, save_to_log, state_hash
from engine.memory.kv_store import KVStore
from engine.memory.layout import FLOAT_TYPES, PAGE_CELLS, KVLayout
from engine.memory.ranges import resolved_range
from engine.memory.row_log import RowSink, RowSource
from engine.types import I32Array, QuantType

DELTAS_MAX = 4
"""Distinct deltas of a sequence that attention is left with; more are folded into K."""

Tables = tuple[SeqRuns, ...]
"""The runs of one sequence in every store."""


def make_stores(
    params: MemoryParams, layer_sets: Sequence[tuple[LayerKV, ...]], budget: PageBudget | None = None
) -> list[KVStore]:
    """An empty store for each set of layers, all under one budget: the one given, or a new one.

    Raises: ParamError: a cache type that the head size forbids, or sizes out of range.
    """
    if not 0 < params.n_ctx <= 2**29 or params.n_seq_max < 1 or params.kv_bytes_max < 0:
        raise ParamError(f"n_ctx={params.n_ctx}, n_seq_max={params.n_seq_max}, kv_bytes_max={params.kv_bytes_max}")
    budget = budget or PageBudget(params.kv_bytes_max)
    layouts = [KVLayout(layers, params.type_k, params.type_v) for layers in layer_sets]
    return [KVStore(layout, PageSet(PagePool(layout.page_bytes, budget))) for layout in layouts]


class KVCache(CheckedMemory):
    """A cache over one store or several.

    Args:
        spec: what the model needs.
        params: what the context decides.
        stores: in the order of `Placement.kv`.
    """

    def __init__(self, spec: MemorySpec, params: MemoryParams, stores: Sequence[KVStore]) -> None:
        self.spec, self.params, self.stores = spec, params, tuple(stores)
        self._tx: KVTx | KVStagedLoad | None = None
        self._defrag_wanted = False
        self._shifted: set[int] = set()  # sequences that may have too many deltas

    # -- what kinds differ in

    @abstractmethod
    def _is_complete(self, tables: Tables) -> bool:
        """Whether every layer has the cells that the next tokens of such a sequence would see."""

    @abstractmethod
    def _settled(self, tables: Tables) -> Tables:
        """Such tables without cells that are worth nothing, because others in front of them are gone."""

    @abstractmethod
    def _trim(self, seq_ids: Sequence[int]) -> None:
        """Let go of cells that no token will see, beyond what is kept for going back."""

    @abstractmethod
    def _make_room(self, n_tokens: int) -> None:
        """Let go of what can be spared, where room for n_tokens is missing."""

    @abstractmethod
    def _like(self, stores: Sequence[KVStore]) -> KVCache:
        """A cache of the same kind over other stores."""

    # -- identity

    @property
    def fingerprint(self) -> str:
        """Names the model, the kind and the layout."""
        return f"{self.params.type_k.name.lower()} {self.params.type_v.name.lower()};{self.content_fingerprint}"

    @property
    def content_fingerprint(self) -> str:
        """Names the model, the kind and the layers: what saved cells must have in common, whatever their types."""
        layers = "|".join(store.layout.describe_layers() for store in self.stores)
        window = f"{self.spec.swa_kind.name.lower()} {self.spec.n_swa}"
        return f"{self.spec.kind};{window};{layers};{self.spec.fingerprint}"

    @property
    def caps(self) -> MemoryCaps:
        """Shifts and divides where there are no images and the model allows it; removes anything."""
        can_shift = self.spec.can_shift and not any(table.images for table in self.stores[0].seqs.values())
        return MemoryCaps(shift=can_shift, divide=can_shift, remove_middle=True)

    @property
    def can_shift(self) -> bool:
        """Whether `seq_add` works on every range."""
        return self.caps.shift

    def cache_of(self, il: int) -> int:
        """Index of the store that keeps layer il."""
        return next(i for i, store in enumerate(self.stores) if store.layout.has(il))

    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off) of layer il in a page of its store."""
        layout = self.stores[self.cache_of(il)].layout
        return layout.k_off(il), layout.v_off(il)

    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_v) of layer il."""
        layout = self.stores[self.cache_of(il)].layout
        return layout.type_k, layout.type_v

    # -- sizes and positions

    @property
    def n_tokens(self) -> int:
        """Cells of all sequences, one that two share counted twice."""
        return sum(table.n_cells for table in self.stores[0].seqs.values())

    @property
    def used_cells(self) -> int:
        """Cells in use, one that two sequences share counted once."""
        return self.stores[0].pages.used_cells

    def stats(self) -> MemoryStats:
        """Sizes, of all stores together."""
        return MemoryStats(
            n_pages=sum(store.pages.n_pages for store in self.stores),
            used_cells=self.used_cells,
            n_tokens=self.n_tokens,
            used_bytes=sum(store.pages.n_pages * store.layout.page_bytes for store in self.stores),
        )

    def need_bytes(self, n_tokens: int, n_ubatch: int) -> int:
        """Bytes of the pages of a sequence of n_tokens, in all stores."""
        return sum(-(-n_tokens // PAGE_CELLS) * store.pages.pool.stride_bytes for store in self.stores)

    def seq_ids(self) -> tuple[int, ...]:
        """The sequences that have cells, ascending."""
        return tuple(sorted(self.stores[0].seqs))

    def tables(self, seq_id: int) -> Tables:
        """The runs of a sequence in every store; not to be changed."""
        return tuple(store.table(seq_id) for store in self.stores)

    def seq_pos_min(self, seq_id: int) -> int:
        """The oldest position that all layers still have, or -1."""
        return max(table.pos_min() for table in self.tables(self._seq(seq_id)))

    def seq_pos_max(self, seq_id: int) -> int:
        """The newest position, or -1; behind an image the largest on any axis."""
        return self.stores[0].table(self._seq(seq_id)).pos_next() - 1

    def seq_last_axes(self, seq_id: int) -> tuple[int, int, int]:
        """(time, row, column) of the newest cell."""
        return self.stores[0].table(self._seq(seq_id)).last_axes()

    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos for which removing [p, end) works: pos itself, past the end the end, among the
        rows and columns of an image its beginning.
        """
        for image in reversed(self.stores[0].table(self._seq(seq_id)).images):
            pos = image.pos if image.pos < pos <= image.reach else pos
        return min(pos, self.seq_pos_max(seq_id) + 1)

    # -- sequence operations

    def clear(self, data: bool = False) -> None:
        """Forget all sequences. Pages are zeroed whenever they are handed out, so `data` asks for nothing more."""
        self._idle()
        for store in self.stores:
            store.seqs.clear()
            store.install({})
        self._shifted.clear()

    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove the cells of a range, of every sequence for seq_id < 0; False: cannot, nothing changed."""
        self._idle()
        p0, p1 = resolved_range(p0, p1)
        changed: dict[int, Tables] = {}
        for s in self.seq_ids() if seq_id < 0 else (self._seq(seq_id),):
            old = self.tables(s)
            if p0 <= old[0].pos_max() and p1 > old[0].pos_min():
                changed[s] = tuple(table.removed(p0, p1) for table in old)
                if not self._is_complete(changed[s]):
                    return False
        self._install(changed)
        return True

    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        """Make the range of dst what it is in src, sharing cells; an empty range of src changes nothing.

        Raises: ParamError: cells of src that dst would need have left the window; nothing changed.
        """
        self._idle()
        p0, p1 = resolved_range(p0, p1)
        source, target = self.tables(self._seq(seq_id_src)), self.tables(self._seq(seq_id_dst))
        if seq_id_src == seq_id_dst or not source[0].kept(p0, p1).n_runs:
            return
        joined = self._settled(tuple(b.with_range_of(a, p0, p1) for a, b in zip(source, target, strict=True)))
        if not self._is_complete(joined):
            raise ParamError(f"positions {p0} to {p1} of sequence {seq_id_src} have left the window of some layers")
        self._shifted.add(seq_id_dst)
        self._install({seq_id_dst: joined})

    def seq_keep(self, seq_id: int) -> None:
        """Forget every other sequence."""
        self._idle()
        self._seq(seq_id)
        nothing = tuple(SeqRuns() for _ in self.stores)
        self._install({s: nothing for s in self.seq_ids() if s != seq_id})

    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move the range by delta positions; cells that come below 0 are removed.

        Raises:
            UnsupportedCallError: the model's positions, or an image's, cannot be moved.
            ParamError: too far, or cells that the next tokens would see have left the window. Nothing changed.
        """
        self._idle()
        self._check_can_shift("seq_add")
        p0, p1 = resolved_range(p0, p1)
        changed: dict[int, Tables] = {}
        for s in self.seq_ids() if seq_id < 0 else (self._seq(seq_id),):
            if delta and p0 < p1:
                self._check_no_images("seq_add", s, p0, p1)
                rotates = self.spec.rope is not None
                moved = tuple(table.moved(p0, p1, delta, rotates) for table in self.tables(s))
                changed[s] = self._settled(moved)
                self._check_complete("seq_add", s, changed[s])
        self._shifted.update(changed)
        self._install(changed)

    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        """Divide the positions of the range, rounding down; K is rotated, on private copies.

        Quantised K is quantised again here, which it never is by `seq_add`: each cell moves by a distance of its own.

        Raises:
            UnsupportedCallError, ParamError: as `seq_add`. ContextFullError: no room for the copies. Nothing changed.
        """
        self._idle()
        self._check_can_shift("seq_div")
        if divisor < 1:
            raise ParamError(f"positions cannot be divided by {divisor}")
        p0, p1 = resolved_range(p0, p1)
        changed: dict[int, Tables] = {}
        for s in self.seq_ids() if seq_id < 0 else (self._seq(seq_id),):
            if divisor > 1 and self.stores[0].table(s).kept(p0, p1).n_runs:
                self._check_no_images("seq_div", s, p0, p1)
                rotates = self.spec.rope is not None
                divided = tuple(table.divided(p0, p1, divisor, rotates) for table in self.tables(s))
                changed[s] = self._settled(divided)
                self._check_complete("seq_div", s, changed[s])
        self._install(self._folded(changed))

    def _install(self, tables: Mapping[int, Tables]) -> None:
        for i, store in enumerate(self.stores if tables else ()):
            store.install({seq_id: of_seq[i] for seq_id, of_seq in tables.items()})

    def _folded(self, tables: Mapping[int, Tables]) -> dict[int, Tables]:
        """Tables without deltas, not installed. Raises: ContextFullError: nothing changed."""
        rope = self.spec.rope
        if rope is None or not tables:
            return dict(tables)
        columns: list[dict[int, SeqRuns]] = []
        try:
            for i, store in enumerate(self.stores):
                columns.append(fold(store, {seq_id: of_seq[i] for seq_id, of_seq in tables.items()}, rope))
        except BaseException:
            for store in self.stores:
                store.install({})
            raise
        return {seq_id: tuple(column[seq_id] for column in columns) for seq_id in tables}

    # -- pending work

    def defrag(self) -> None:
        """Ask for the cells to be compacted by sequence and position, at the next `prepare` or `update`."""
        self._defrag_wanted = True

    def prepare(self, n_tokens: int) -> None:
        """Compact if asked for, fold where a sequence has many deltas and there is room, make room for n_tokens."""
        self._idle()
        self._compact()
        if self._shifted:
            many = [s for s in self._shifted if any(len(t.deltas()) > DELTAS_MAX for t in self.tables(s))]
            self._shifted.clear()
            if many and self.params.type_k in FLOAT_TYPES:
                self._try_fold(many)
        self._make_room(n_tokens)

    def _compact(self) -> bool:
        """Compact if asked for: whether it was."""
        was_wanted, self._defrag_wanted = self._defrag_wanted, False
        for store in self.stores if was_wanted else ():
            compact(store)
        return was_wanted

    def _try_fold(self, seq_ids: Sequence[int]) -> None:
        """Fold where there is room; without it attention goes on with the deltas, only slower."""
        try:
            self._install(self._folded({s: self.tables(s) for s in seq_ids}))
        except (ContextFullError, OutOfMemoryError):
            self._shifted.update(seq_ids)

    def update(self, n_tokens: int = 0) -> bool:
        """Carry out all pending work, fold all deltas into K and make room; quantised K keeps its deltas.

        Raises: ContextFullError: no room for the private copies; nothing changed.
        """
        self._idle()
        had_work = self._compact()
        shifted = {s: self.tables(s) for s in self.seq_ids() if any(len(t.deltas()) for t in self.tables(s))}
        if shifted and self.params.type_k in FLOAT_TYPES:
            self._install(self._folded(shifted))
            had_work = True
        self._make_room(n_tokens)
        return had_work

    # -- transaction, copies, state

    def begin(self) -> Tx:
        """Open the one transaction that may be open at a time."""
        self._idle()
        self._tx = tx = KVTx(self)
        return tx

    def clone(self) -> KVCache:
        """The same content, sharing pages; from now on each side writes only pages of its own."""
        self._idle()
        twin = self._like([store.clone() for store in self.stores])
        twin._shifted = set(self._shifted)
        return twin

    def close(self) -> None:
        """Let go of all pages."""
        if isinstance(self._tx, KVTx):
            self._tx.rollback()
        elif self._tx is not None:
            self._tx.discard()
        self.clear()

    def state_hash(self) -> bytes:
        """Digest of every sequence's positions, K and V, whatever pages they lie in."""
        return state_hash(self.stores)

    def save(self, writer: BlockWriter, seq_id: int | None = None, sink: RowSink | None = None) -> None:
        """Write the blocks of one sequence, or of all; to a sink the rows of one."""
        if sink is None or seq_id is None:
            save_stores(self.content_fingerprint, self.stores, writer, None if seq_id is None else self._seq(seq_id))
        else:
            save_to_log(self.content_fingerprint, self.stores, writer, self._seq(seq_id), sink)

    def load(
        self,
        reader: BlockReader,
        seq_id: int | None = None,
        convert_kv: bool = False,
        source: RowSource | None = None,
    ) -> StagedLoad:
        """Read and stage what `save` wrote: one sequence as seq_id, or all; in other types only if asked to convert."""
        self._idle()
        if seq_id is not None:
            self._seq(seq_id)
        self._tx = staged = KVStagedLoad(self)
        try:
            fingerprint, params = self.content_fingerprint, self.params
            tables = load_stores(fingerprint, self.stores, reader, seq_id, params, convert_kv, source)
            for of_seq in tables.values():
                settled = self._settled(of_seq)
                if not self._is_complete(settled) or any(
                    a.n_cells != b.n_cells for a, b in zip(of_seq, settled, strict=True)
                ):
                    raise reader.error("cells inside the window are missing")
        except BaseException:
            staged.discard()
            raise
        nothing = tuple(SeqRuns() for _ in self.stores)
        left_out = {} if seq_id is not None else dict.fromkeys(self.seq_ids(), nothing)
        staged.tables = {**left_out, **tables}
        return staged

    # -- checks

    def _check_no_images(self, call: str, seq_id: int, p0: int, p1: int) -> None:
        if found := inside(self.stores[0].table(seq_id).images, p0, p1):
            what = f"an image: sequence {seq_id} has one at position {found[0].pos}, and images cannot be moved"
            raise UnsupportedCallError(call, what)

    def _check_complete(self, call: str, seq_id: int, tables: Tables) -> None:
        if not self._is_complete(tables):
            raise ParamError(f"{call}: cells of sequence {seq_id} that the next tokens would see have left the window")


class KVTx(Tx):
    """A transaction over all stores of a cache."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        for store in cache.stores:
            store.begin()

    def place(self, ubatch: UBatch) -> Placement:
        """Give each token a cell in every store."""
        cache = self._cache
        for seq_id, t0, n in ubatch.segments:
            first, last = int(ubatch.pos[t0]), int(ubatch.pos[t0 + n - 1])
            if last >= cache.params.n_ctx:
                raise ContextFullError(last + 1, cache.params.n_ctx, "positions")
            if first < 0 or (n > 1 and (np.diff(ubatch.pos[t0 : t0 + n]) < 0).any()):
                raise BatchError(f"positions of sequence {seq_id} are negative or out of order")
        for ids in set(ubatch.seq_ids):
            if min(ids) < 0 or max(ids) >= cache.params.n_seq_max:
                raise BatchError(f"sequences {ids}: one is out of range, n_seq_max is {cache.params.n_seq_max}")
        if ubatch.axes is not None and len(cache.stores) > 1:
            raise BatchError("images need a cache in which every layer sees every cell")
        kv = tuple(store.place(ubatch) for store in cache.stores)
        return Placement(kv, self._rope_pos(ubatch))

    def _rope_pos(self, ubatch: UBatch) -> I32Array:
        seqs = self._cache.stores[0].seqs
        out = ubatch.pos
        for seq_id, t0, n in ubatch.segments:
            if frame := seqs[seq_id].frame:
                out = out.copy() if out is ubatch.pos else out
                out[t0 : t0 + n] += frame
        return out

    def commit(self) -> None:
        """Keep everything that was placed."""
        touched = self._cache.stores[0].commit()
        for store in self._cache.stores[1:]:
            store.commit()
        self._cache._tx = None
        self._cache._trim(touched)

    def rollback(self) -> None:
        """Bring back exactly the state that `begin` saw."""
        for store in self._cache.stores:
            store.rollback()
        self._cache._tx = None


class KVStagedLoad(StagedLoad):
    """Loaded cells that wait in the stores of a cache, which does nothing else meanwhile."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self.tables: Mapping[int, Tables] = {}

    def ends(self) -> dict[int, int]:
        """The newest position of each sequence that was read."""
        return {s: of_seq[0].pos_next() - 1 for s, of_seq in self.tables.items() if of_seq[0].n_runs}

    def swap_in(self) -> None:
        """Replace the sequence, or all."""
        for store in self._cache.stores:
            store.pages.commit()
        self._cache._tx = None
        self._cache._shifted.update(self.tables)
        self._cache._install(self.tables)

    def discard(self) -> None:
        """Let go of it."""
        for store in self._cache.stores:
            store.pages.rollback()
        self._cache._tx = None
