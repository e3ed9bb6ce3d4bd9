"""The cells of one sequence: runs in position order, and everything that can be done to them.

Positions belong to the sequence, not to the cell, so that one page serves many sequences at different positions.
Appending changes a table in place; every other operation returns a new one, so that a memory can look at the outcome
before it takes it.

Only differences of positions count for attention. Each table has a *frame*: a query at position p is rotated for
p + frame, and K of a run was rotated for position + frame - delta. The newest cell always has delta 0, so a context
that shifts again and again keeps one growing delta on its kept prefix and none on the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np

from engine.errors import ParamError
from engine.memory.base import POS_END, RunArray, U64Array
from engine.memory.images import Images, inside, joined, outside
from engine.types import I32Array, I64Array

RUN_DTYPE = np.dtype(
    [
        ("page", np.uint64),
        ("first", np.int32),
        ("count", np.int32),
        ("pos0", np.int32),
        ("step", np.int32),
        ("delta", np.int32),
        ("page_id", np.int32),
    ]
)
"""KVRun of cext/src/attn.h: cell first + i stands at pos0 + i * step; `page_id` takes the field `reserved`."""

_RUN = struct.Struct("=Qiiiiii")
_COUNT = struct.Struct("=i")  # `count` of a run stands 12 bytes behind its begin, 20 before its end

SEGMENT_DTYPE = np.dtype([("t0", np.int32), ("n_tokens", np.int32), ("run0", np.int64), ("n_runs", np.int64)])
"""AttnSegment of cext/src/attn.h."""

TURN_MAX = 2**29  # so that no sum of a position, a frame and a delta leaves 32 bits


class CellRange(NamedTuple):
    """Cells first .. first + n - 1 of a page."""

    page: int  # address
    page_id: int
    first: int
    n: int


@dataclass(frozen=True, slots=True)
class Cells:
    """A table written out, one entry per cell in position order.

    Attributes:
        page: u64[n], page_id: i32[n], cell: i32[n]; where it lies.
        pos: i32[n]; delta: i32[n]; as in a run.
    """

    page: U64Array
    page_id: I32Array
    cell: I32Array
    pos: I32Array
    delta: I32Array

    def __len__(self) -> int:
        return len(self.pos)

    def key(self) -> I64Array:
        """i64[n], one number per place: equal for the same cell of the same page."""
        return cast(I64Array, self.page_id.astype(np.int64) * 64 + self.cell)

    def take(self, index: I64Array | slice) -> Cells:
        """The cells at an index array or slice."""
        return Cells(self.page[index], self.page_id[index], self.cell[index], self.pos[index], self.delta[index])

    def replaced(self, index: I64Array, by: Cells) -> Cells:
        """With the cells at an index array lying elsewhere, with other deltas; positions stay."""
        page, page_id, cell, delta = self.page.copy(), self.page_id.copy(), self.cell.copy(), self.delta.copy()
        page[index], page_id[index], cell[index], delta[index] = by.page, by.page_id, by.cell, by.delta
        return Cells(page, page_id, cell, self.pos, delta)

    def with_delta(self, delta: I32Array) -> Cells:
        """With other deltas."""
        return Cells(self.page, self.page_id, self.cell, self.pos, delta)


def cells_of_ranges(ranges: list[CellRange], pos: I32Array, delta: int) -> Cells:
    """The cells of ranges, one for each position, all with one delta."""
    count = [where.n for where in ranges]
    return Cells(
        np.repeat(np.array([where.page for where in ranges], np.uint64), count),
        np.repeat(np.array([where.page_id for where in ranges], np.int32), count),
        np.array([where.first + i for where in ranges for i in range(where.n)], np.int32),
        pos,
        np.full(len(pos), delta, np.int32),
    )


def join_cells(parts: Sequence[Cells]) -> Cells:
    """One after the other."""
    parts = parts or [SeqRuns().cells()]
    return Cells(
        np.concatenate([part.page for part in parts]),
        np.concatenate([part.page_id for part in parts]),
        np.concatenate([part.cell for part in parts]),
        np.concatenate([part.pos for part in parts]),
        np.concatenate([part.delta for part in parts]),
    )


class SeqRuns:
    """The runs of one sequence.

    Attributes:
        n_runs: runs in use.
        frame: what is added to positions before rotating; 0 for a sequence that was never shifted.
        images: the images among the cells.
    """

    __slots__ = ("_memory", "_words", "frame", "images", "n_runs")

    def __init__(self, runs: RunArray | None = None, frame: int = 0, images: Images = ()) -> None:
        # Plain words: copying structures goes field by field, fifty times slower.
        self._words: I64Array = np.zeros(4 * 8, np.int64) if runs is None else runs.view(np.int64)
        self._memory = self._words.data
        self.n_runs = 0 if runs is None else len(runs)
        self.frame = frame if self.n_runs else 0
        self.images = images if self.n_runs else ()

    # -- looking

    @property
    def runs(self) -> RunArray:
        """KVRun[n_runs], a view that the next append may change."""
        return cast(RunArray, self._words[: 4 * self.n_runs].view(RUN_DTYPE))

    def snapshot(self) -> RunArray:
        """KVRun[n_runs], a copy."""
        return cast(RunArray, self._words[: 4 * self.n_runs].copy().view(RUN_DTYPE))

    @property
    def words(self) -> I64Array:
        """i64[4 * n_runs], the same view as plain words."""
        return self._words[: 4 * self.n_runs]

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return int(self.runs["count"].sum())

    def pos_min(self) -> int:
        """The first position, or -1."""
        return int(_RUN.unpack_from(self._memory)[3]) if self.n_runs else -1

    def pos_max(self) -> int:
        """The last position, or -1."""
        return self.tail()[2]

    def pos_next(self) -> int:
        """Where what follows begins: behind the last position, and behind every row and column of images."""
        return max(self.pos_max(), *(image.reach for image in self.images)) + 1 if self.images else self.pos_max() + 1

    def last_axes(self) -> tuple[int, int, int]:
        """(time, row, column) of the last cell: its position on each axis, or -1 without cells."""
        pos = self.pos_max()
        return (pos, *self.images[-1][2:]) if self.images and self.images[-1].pos == pos else (pos, pos, pos)

    def numbered(self) -> RunArray:
        """KVRun[n_runs], a copy in which the i-th cell stands at position i."""
        runs = self.snapshot()
        runs["pos0"] = np.cumsum(runs["count"]) - runs["count"]
        runs["step"] = 1
        return runs

    def tail(self) -> tuple[int, int, int]:
        """(page_id, cell, position) of the last cell, or (-1, 0, -1)."""
        if not self.n_runs:
            return -1, 0, -1
        _, first, count, pos0, step, _, page_id = _RUN.unpack_from(self._memory, 32 * (self.n_runs - 1))
        return page_id, first + count - 1, pos0 + (count - 1) * step

    def deltas(self) -> I32Array:
        """The distinct deltas other than 0."""
        found = np.unique(self.runs["delta"])
        return cast(I32Array, found[found != 0])

    def cells(self) -> Cells:
        """Write the table out."""
        runs = self.runs
        count = runs["count"]
        index = np.repeat(np.arange(len(runs)), count)
        start = np.cumsum(count, dtype=np.int64) - count
        offset = (np.arange(len(index)) - start[index]).astype(np.int32)
        return Cells(
            runs["page"][index],
            runs["page_id"][index],
            runs["first"][index] + offset,
            runs["pos0"][index] + offset * runs["step"][index],
            runs["delta"][index],
        )

    def copy(self) -> SeqRuns:
        """A table of its own with the same runs."""
        return SeqRuns(self.snapshot(), self.frame, self.images)

    def with_images(self, images: Images) -> SeqRuns:
        """The same runs with other images."""
        return SeqRuns(self.snapshot(), self.frame, images)

    # -- appending, in place

    def mark(self) -> tuple[int, int, int]:
        """What `reset` needs to undo any number of appends."""
        return self.n_runs, self._last_count() if self.n_runs else 0, self.frame

    def reset(self, mark: tuple[int, int, int]) -> None:
        """Undo all appends since `mark`."""
        self.n_runs, count, self.frame = mark
        if self.n_runs:
            _COUNT.pack_into(self._memory, 32 * self.n_runs - 20, count)

    def append(self, where: CellRange, pos0: int) -> None:
        """Add cells at pos0, pos0 + 1, ..., encoded in this table's frame; pos0 is not below the last position."""
        n = self.n_runs
        if n:
            page, first, count, begin, step, delta, page_id = _RUN.unpack_from(self._memory, 32 * (n - 1))
            follows = page_id == where.page_id and first + count == where.first and begin + count == pos0
            if follows and delta == 0 and (step == 1 or count == 1):
                run = (page, first, count + where.n, begin, 1, 0, page_id)
                _RUN.pack_into(self._memory, 32 * (n - 1), *run)
                return
        if 4 * n == len(self._words):
            self._words = np.concatenate([self._words, np.zeros(max(4 * 8, 4 * n), np.int64)])
            self._memory = self._words.data
        _RUN.pack_into(self._memory, 32 * n, where.page, where.first, where.n, pos0, 1, 0, where.page_id)
        self.n_runs = n + 1

    def _last_count(self) -> int:
        return int(_COUNT.unpack_from(self._memory, 32 * self.n_runs - 20)[0])

    # -- everything else, into a new table

    def removed(self, p0: int, p1: int) -> SeqRuns:
        """Without the range."""
        runs, i = _split(self.runs, p0)
        runs, j = _split(runs, p1)
        return SeqRuns(np.concatenate([runs[:i], runs[j:]]), self.frame, outside(self.images, p0, p1))._reframed()

    def kept(self, p0: int, p1: int) -> SeqRuns:
        """The range alone."""
        runs, i = _split(self.runs, p0)
        runs, j = _split(runs, p1)
        return SeqRuns(runs[i:j].copy(), self.frame, inside(self.images, p0, p1))

    def newest(self, n: int) -> SeqRuns:
        """The last n cells, or all."""
        runs = self.runs
        behind = np.cumsum(runs["count"][::-1])
        at = len(runs) - 1 - int(np.searchsorted(behind, n))
        if n <= 0 or at < 0:
            return self.copy() if n > 0 else SeqRuns()
        runs = runs[at:].copy()
        n_cut = int(behind[len(behind) - 1 - at]) - n
        runs["first"][0] += n_cut
        runs["count"][0] -= n_cut
        runs["pos0"][0] += n_cut * runs["step"][0]
        return SeqRuns(runs, self.frame, inside(self.images, int(runs["pos0"][0]), POS_END))

    def with_range_of(self, other: SeqRuns, p0: int, p1: int) -> SeqRuns:
        """With the range made what it is in `other`, sharing its cells."""
        part = other.kept(p0, p1)
        rest = self.removed(p0, p1)
        if not rest.n_runs:
            return part._reframed()
        moved = part.runs
        moved["delta"] += rest.frame - part.frame
        at = int(np.searchsorted(rest.runs["pos0"], p0))
        runs = np.concatenate([rest.runs[:at], moved, rest.runs[at:]])
        return SeqRuns(_coalesced(runs), rest.frame, joined(rest.images + part.images))._reframed()

    def with_cells(self, added: Cells) -> SeqRuns:
        """With more cells at any positions, each behind those that share its position."""
        return from_cells(_sorted(join_cells([self.cells(), added])), self.frame, self.images)._reframed()

    def moved(self, p0: int, p1: int, delta: int, rotates: bool) -> SeqRuns:
        """With the range, which has no images, moved by delta positions; what comes below 0 is gone.

        Args:
            rotates: whether K depends on the position, so that the move must be remembered.
        Raises: ParamError: a position would leave the range of 32 bits.
        """
        runs, i = _split(self.runs, p0)
        runs, j = _split(runs, p1)
        if i == j:
            return self
        runs = runs.copy()
        last = _last_pos(runs)
        turned = max(abs(self.frame), int(np.abs(runs["delta"].astype(np.int64)).max())) + abs(delta)
        if int(last[j - 1]) + delta > POS_END - 1 or turned > TURN_MAX:
            raise ParamError(f"moving positions {int(runs['pos0'][i])} to {int(last[j - 1])} by {delta} goes too far")
        runs["pos0"][i:j] += delta
        if rotates:
            runs["delta"][i:j] += delta
        last[i:j] += delta
        if np.any(runs["pos0"][1:] < last[:-1]):
            table = from_cells(_sorted(SeqRuns(runs, self.frame).cells()), self.frame, self.images)
        else:
            table = SeqRuns(_coalesced(runs), self.frame, self.images)
        if table.pos_min() < 0:
            table = table.removed(-(2**31), 0)
        return table._reframed()

    def divided(self, p0: int, p1: int, divisor: int, rotates: bool) -> SeqRuns:
        """With the positions of the range, which has no images, divided, rounding down; each cell gets the delta."""
        cells = self.cells()
        inside = (cells.pos >= p0) & (cells.pos < p1)
        new = np.where(inside, cells.pos // divisor, cells.pos).astype(np.int32)
        delta = cells.delta + (new - cells.pos) if rotates else cells.delta
        divided = Cells(cells.page, cells.page_id, cells.cell, new, delta)
        return from_cells(_sorted(divided), self.frame, self.images)._reframed()

    def _reframed(self) -> SeqRuns:
        """The same distances, with delta 0 at the newest cell."""
        if self.n_runs and (delta := int(self.runs["delta"][-1])):
            self.runs["delta"][:] -= delta
            self.frame -= delta
        return self


def from_cells(cells: Cells, frame: int, images: Images = ()) -> SeqRuns:
    """The fewest runs of step 1 (or 0, for cells that share a position) that make these cells, in their order."""
    runs = np.empty(len(cells), RUN_DTYPE)
    runs["page"], runs["page_id"], runs["first"] = cells.page, cells.page_id, cells.cell
    runs["count"], runs["pos0"], runs["step"], runs["delta"] = 1, cells.pos, 1, cells.delta
    return SeqRuns(_coalesced(_coalesced(runs, step=0), step=1), frame, images)


def _sorted(cells: Cells) -> Cells:
    return cells.take(np.argsort(cells.pos, kind="stable"))


def _last_pos(runs: RunArray) -> I64Array:
    return cast(I64Array, runs["pos0"] + (runs["count"].astype(np.int64) - 1) * runs["step"])


def _split(runs: RunArray, p: int) -> tuple[RunArray, int]:
    """Runs cut at p, and the index of the first run that begins at p or later."""
    last = _last_pos(runs)
    i = int(np.searchsorted(last, p))
    if i == len(runs) or runs["pos0"][i] >= p:
        return runs, i
    head, tail = runs[i].copy(), runs[i].copy()
    n = -((int(head["pos0"]) - p) // int(head["step"]))
    head["count"] = n
    tail["first"] += n
    tail["count"] -= n
    tail["pos0"] += n * head["step"]
    return np.concatenate([runs[:i], np.array([head, tail], RUN_DTYPE), runs[i + 1 :]]), i + 1


def _coalesced(runs: RunArray, step: int = 1) -> RunArray:
    """Neighbours joined where one run of this step can say both."""
    if len(runs) < 2:
        return runs
    a, b = runs[:-1], runs[1:]
    single_a, single_b = a["count"] == 1, b["count"] == 1
    joins = (
        (a["page_id"] == b["page_id"])
        & (a["first"] + a["count"] == b["first"])
        & (a["delta"] == b["delta"])
        & (a["pos0"] + a["count"] * step == b["pos0"])
        & (single_a | (a["step"] == step))
        & (single_b | (b["step"] == step))
    )
    if not joins.any():
        return runs
    start = np.concatenate([[0], np.flatnonzero(~joins) + 1])
    out = runs[start].copy()
    out["count"] = np.add.reduceat(runs["count"], start)
    joined = out["count"] > runs["count"][start]
    out["step"][joined] = step
    return cast(RunArray, out)
