"""What every memory is: its specification, its operations, and the transaction that a decode runs in.

An arch states a `MemorySpec`; `engine.context` makes the memory from it and drives it: `prepare`, `begin`, `place`
each ubatch, then `commit` or `rollback`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np
import numpy.typing as npt

from engine.batch import UBatch
from engine.batch_split import SplitPolicy
from engine.errors import UnsupportedCallError
from engine.io import BlockReader, BlockWriter
from engine.types import F32Array, I32Array, QuantType

if TYPE_CHECKING:
    from engine.memory.row_log import RowSink, RowSource

U64Array = npt.NDArray[np.uint64]
RunArray = npt.NDArray[np.void]
"""Structures: KVRun[n_runs], see `engine.memory.cells.RUN_DTYPE`."""

POS_END = 2**31
"""Beyond every position."""


class SwaKind(IntEnum):
    """Which cells a query of a sliding-window layer sees; numbers as in cext/src/attn.h."""

    NONE = 0
    STANDARD = 1
    CHUNKED = 2
    SYMMETRIC = 3


class RopeShift(Protocol):
    """Rotates cached K by a number of positions, with each layer's own frequencies and no magnitude factor."""

    def rotates(self, il: int) -> bool:
        """Whether K of layer il depends on the position."""

    def rotate(self, il: int, k: F32Array, delta: I32Array) -> None:
        """Turn K encoded at p into K encoded at p + delta, in place.

        Args:
            il: a layer that rotates.
            k: f32[n_cells, n_head_kv, d_k].
            delta: i32[n_cells], positions.
        """


@dataclass(frozen=True, slots=True)
class LayerKV:
    """What one layer keeps of a token.

    Attributes:
        il: the layer.
        n_head_kv: heads; d_k, d_v: values of one head's K and V, d_v 0 where only K is kept.
        d_latent: how many values at the end of a K are V as well, where only K is kept.
    """

    il: int
    n_head_kv: int
    d_k: int
    d_v: int
    d_latent: int = 0


@dataclass(frozen=True, slots=True)
class LayerState:
    """What one recurrent layer keeps of a sequence, in f32 values.

    Attributes:
        il: the layer.
        n_r: of the short memory (convolution inputs, shifted tokens).
        n_s: of the state (SSM, WKV, delta net).
    """

    il: int
    n_r: int
    n_s: int


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """The memory that a model needs.

    Attributes:
        kind: which memory; "hybrid" has keys and values for `layers` and states for `states`.
        layers: the layers that have a cache, ascending.
        swa_layers: those of them with a sliding window.
        n_swa: its length, in positions; swa_kind: which sort.
        states: the recurrent layers, ascending.
        rope: rotates K; None where no layer's K depends on the position.
        can_shift: whether `seq_add` and `seq_div` keep their meaning (not with image positions).
        fingerprint: of the model and of whatever changes K and V.
    """

    kind: Literal["kv", "iswa", "mla", "recurrent", "hybrid"]
    layers: tuple[LayerKV, ...]
    fingerprint: str
    rope: RopeShift | None = None
    can_shift: bool = True
    swa_layers: frozenset[int] = frozenset()
    n_swa: int = 0
    swa_kind: SwaKind = SwaKind.NONE
    states: tuple[LayerState, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryParams:
    """What a context decides about its memory.

    Attributes:
        n_ctx: positions that a sequence may have.
        n_seq_max: sequence ids are below it.
        kv_bytes_max: bound of the pages of this memory and its clones together; 0 for none.
        swa_margin: cells kept behind the window, so that a chat can step back; None: as many as kv_bytes_max allows,
            and where there is no bound as many as the window has, but no fewer than 1024.
        n_snapshots: older states that a recurrent sequence keeps to step back to.
        swa_full: keep every cell of sliding-window layers, so that any position can be gone back to.
    """

    n_ctx: int
    n_seq_max: int = 1
    kv_bytes_max: int = 0
    type_k: QuantType = QuantType.F16
    type_v: QuantType = QuantType.F16
    swa_margin: int | None = None
    swa_full: bool = False
    n_snapshots: int = 8


@dataclass(frozen=True, slots=True)
class KVPlacement:
    """Where the tokens of a ubatch go in one cache, and which cells they see.

    Attributes:
        pages: u64[n_tokens], address of the page of each token's cell.
        cells: i32[n_tokens], the cell in it.
        pos: i32[n_tokens], the positions that masks go by: the tokens' own, or the numbers of their cells where images
            give many cells one position. The runs have the same.
        runs: KVRun[n_runs] of all segments, those of the ubatch included; a copy that nothing changes any more.
        segments: AttnSegment[n_segments]: t0, n_tokens, run0, n_runs; see `engine.memory.cells.SEGMENT_DTYPE`.
    """

    pages: U64Array
    cells: I32Array
    pos: I32Array
    runs: RunArray
    segments: RunArray


@dataclass(frozen=True, slots=True)
class StatePlacement:
    """Which recurrent states a ubatch goes on from, and where it leaves them: one of each per segment.

    Attributes:
        source: u64[n_segments], address of the state before, 0 for a sequence that begins (all zeros).
        target: u64[n_segments], address for the state behind; may be the source itself. All of it must be written.
        segments: the ubatch's: (seq_id, t0, n_tokens).
    """

    source: U64Array
    target: U64Array
    segments: tuple[tuple[int, int, int], ...]

    def rows(self) -> U64Array:
        """The same as u64[n_segments, 4]: first token, tokens, source, target."""
        rows: U64Array = np.empty((len(self.segments), 4), np.uint64)
        rows[:, :2] = [segment[1:] for segment in self.segments]
        rows[:, 2], rows[:, 3] = self.source, self.target
        return rows


@dataclass(frozen=True, slots=True)
class Placement:
    """What a graph run needs to know of the memory.

    Attributes:
        kv: one placement per cache: (all layers,), or (base, sliding window); none where there are only states.
        rope_pos: i32[n_tokens], the positions to rotate q and k by: pos plus the frame of each sequence. Masks,
            learned positions and everything else go by pos itself.
    """

    kv: tuple[KVPlacement, ...]
    rope_pos: I32Array
    states: StatePlacement | None = None


@dataclass(frozen=True, slots=True)
class MemoryCaps:
    """What a memory can do with a sequence.

    Attributes:
        shift: `seq_add` works.
        divide: `seq_div` works.
        remove_middle: `seq_rm` of a range with cells on both sides can work.
    """

    shift: bool
    divide: bool
    remove_middle: bool


class Tx(ABC):
    """One decode's hold on a memory: what it places becomes part of the sequences at once, and for good at commit."""

    @abstractmethod
    def place(self, ubatch: UBatch) -> Placement:
        """Give each token a cell. Writes no K or V.

        Raises:
            ContextFullError: a position past n_ctx, or no room; roll back.
            BatchError: a sequence id or a position that cannot be.
        """

    @abstractmethod
    def commit(self) -> None:
        """Keep everything that was placed."""

    @abstractmethod
    def rollback(self) -> None:
        """Bring back exactly the state that `begin` saw."""


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Sizes of a memory for people and tests.

    Attributes:
        n_pages: pages held, those that clones hold too included; used_bytes: theirs.
        used_cells: cells in use, one that two sequences share counted once.
        n_tokens: cells of all sequences, one that two share counted twice.
    """

    n_pages: int
    used_bytes: int
    used_cells: int
    n_tokens: int


class Memory(ABC):
    """What a context remembers between decodes.

    A sequence id below 0 means any sequence where that is said; p0 < 0 means 0, p1 < 0 means no end; ranges are
    half-open. Nothing here may be called inside a transaction but the transaction's own methods.

    Attributes:
        is_attached: whether a context uses it; contexts keep this.
        split_policy: what its micro batches must be like.
        v_in_k: whether values are a part of the rows of keys, and not kept beside them.

    Thread: one at a time. A `clone` may be used, saved and closed in another thread.
    """

    is_attached: bool = False
    split_policy: ClassVar[SplitPolicy] = SplitPolicy.SIMPLE
    v_in_k: ClassVar[bool] = False

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names the model, the kind and the layout: memories with the same one can take each other's place."""

    @property
    @abstractmethod
    def caps(self) -> MemoryCaps:
        """What it can do."""

    @abstractmethod
    def cache_of(self, il: int) -> int:
        """Index of the cache that keeps layer il: of `Placement.kv`."""

    @abstractmethod
    def kv_offsets(self, il: int) -> tuple[int, int]:
        """(k_off, v_off): where K and V of layer il stand in a page of its cache, in bytes."""

    @abstractmethod
    def kv_types(self, il: int) -> tuple[QuantType, QuantType]:
        """(type_k, type_v): how K and V of layer il are kept."""

    def state_offsets(self, il: int) -> tuple[int, int]:
        """(r_off, s_off): where layer il's short memory and state stand in a slot, in bytes.

        Raises: UnsupportedCallError: there are no recurrent states.
        """
        raise UnsupportedCallError("state_offsets", type(self).__name__)

    @abstractmethod
    def clear(self, data: bool = False) -> None:
        """Forget all sequences. Pages are zeroed whenever they are handed out, so `data` asks for nothing more."""

    @abstractmethod
    def seq_rm(self, seq_id: int, p0: int, p1: int) -> bool:
        """Remove the cells of a range; seq_id < 0: of every sequence.

        Returns: False where only a whole removal is possible; then nothing changed.
        """

    @abstractmethod
    def seq_cp(self, seq_id_src: int, seq_id_dst: int, p0: int, p1: int) -> None:
        """Make the range of dst what it is in src, sharing cells; an empty range of src changes nothing."""

    @abstractmethod
    def seq_keep(self, seq_id: int) -> None:
        """Forget every other sequence."""

    @abstractmethod
    def seq_add(self, seq_id: int, p0: int, p1: int, delta: int) -> None:
        """Move the range by delta positions; cells that come below 0 are removed."""

    @abstractmethod
    def seq_div(self, seq_id: int, p0: int, p1: int, divisor: int) -> None:
        """Divide the positions of the range, rounding down; several cells may share a position then."""

    @abstractmethod
    def seq_pos_min(self, seq_id: int) -> int:
        """The oldest position that all layers still have, or -1."""

    @abstractmethod
    def seq_pos_max(self, seq_id: int) -> int:
        """The newest position, or -1; behind an image the largest on any axis. What follows begins one further."""

    def seq_last_axes(self, seq_id: int) -> tuple[int, int, int]:
        """(time, row, column) of the newest cell: its position on each axis; -1 each without cells."""
        pos = self.seq_pos_max(seq_id)
        return pos, pos, pos

    @abstractmethod
    def seq_pos_reentry(self, seq_id: int, pos: int) -> int:
        """The newest position p <= pos for which removing [p, end) works, so that decoding can go on at p."""

    @abstractmethod
    def seq_ids(self) -> tuple[int, ...]:
        """The sequences that have cells, ascending."""

    @abstractmethod
    def defrag(self) -> None:
        """Ask for the cells to be compacted by sequence and position, at the next `prepare` or `update`."""

    @abstractmethod
    def prepare(self, n_tokens: int) -> None:
        """Carry out pending work and make room for a decode; changes no answer."""

    @abstractmethod
    def update(self, n_tokens: int = 0) -> bool:
        """Carry out all pending work, and fold the deltas of shifts into K where it is not quantised.

        Under a bound on memory this makes the room that a decode of n_tokens takes, as `prepare` would: a decode that
        fails or is aborted behind it leaves the memory as it is then.

        Returns: whether anything was done.
        Raises: ContextFullError: no room for the private copies; nothing changed.
        """

    @abstractmethod
    def begin(self) -> Tx:
        """Open the one transaction that may be open at a time."""

    @abstractmethod
    def clone(self) -> Memory:
        """The same content, sharing pages; from now on each side writes only pages of its own."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all pages. Closing twice is fine."""

    @abstractmethod
    def state_hash(self) -> bytes:
        """Digest of what is remembered, whatever pages it lies in; take it after `update`."""

    @abstractmethod
    def save(self, writer: BlockWriter, seq_id: int | None = None, sink: RowSink | None = None) -> None:
        """Write the blocks of one sequence, or of all. Needs no room and changes nothing.

        Args:
            sink: takes the rows of cells, those of one sequence; else they are blocks like all others.
        """

    @abstractmethod
    def load(
        self,
        reader: BlockReader,
        seq_id: int | None = None,
        convert_kv: bool = False,
        source: RowSource | None = None,
    ) -> StagedLoad:
        """Read blocks that `save` wrote and stage them: one sequence as seq_id, or all.

        Args:
            convert_kv: take K and V that were kept in other types, and convert them; else they are refused.
            source: has the rows of cells, where they went to a sink.

        Raises: StateFileError: unusable; nothing changed. ContextFullError: no room.
        """

    @abstractmethod
    def need_bytes(self, n_tokens: int, n_ubatch: int) -> int:
        """Bytes that a sequence of n_tokens takes, decoded n_ubatch at a time."""

    @abstractmethod
    def stats(self) -> MemoryStats:
        """Sizes, for people and tests."""


class StagedLoad(ABC):
    """What `load` read, not yet part of the memory."""

    @abstractmethod
    def ends(self) -> dict[int, int]:
        """The newest position of each sequence that was read."""

    @abstractmethod
    def swap_in(self) -> None:
        """Replace the sequence, or all; cannot fail."""

    @abstractmethod
    def discard(self) -> None:
        """Let go of it; the memory is as it was."""
