"""Run tables against written-out lists of cells."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from engine.memory.cells import RUN_DTYPE, SEGMENT_DTYPE, CellRange, Cells, SeqRuns, from_cells

PLACES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 63), st.integers(0, 40), st.integers(-2, 2)), max_size=40, unique_by=lambda c: c[:2]
)  # fmt: skip


def cells_of(places: list[tuple[int, int, int, int]]) -> Cells:
    """Cells in position order from (page, cell, position, delta)."""
    rows = np.array(sorted(places, key=lambda c: c[2]), np.int32).reshape(-1, 4)
    page_id, cell, pos, delta = (np.ascontiguousarray(column) for column in rows.T)
    return Cells(page_id.astype(np.uint64) + 1000, page_id, cell, pos, delta)


def rows_of(table: SeqRuns) -> list[tuple[int, int, int, int]]:
    """(page, cell, position, distance from where it was encoded) of each cell."""
    c = table.cells()
    return list(zip(c.page_id.tolist(), c.cell.tolist(), c.pos.tolist(), (c.delta - table.frame).tolist(), strict=True))


def test_structures_are_those_of_the_kernels() -> None:
    assert RUN_DTYPE.itemsize == 32 and SEGMENT_DTYPE.itemsize == 24
    fields = dict(RUN_DTYPE.fields or {})
    assert [fields[n][1] for n in ("page", "first", "count", "pos0", "step", "delta")] == [
        0,
        8,
        12,
        16,
        20,
        24,
    ]


@settings(deadline=None, max_examples=150)
@given(PLACES, st.integers(-1, 45), st.integers(-1, 45), st.integers(0, 45))
def test_ranges(places: list[tuple[int, int, int, int]], p0: int, p1: int, n: int) -> None:
    table = from_cells(cells_of(places), 5)
    rows = rows_of(table)
    assert [r[:3] for r in rows] == [c[:3] for c in sorted(places, key=lambda c: c[2])]
    lo, hi = min(p0, p1), max(p0, p1)
    assert rows_of(table.kept(lo, hi)) == [r for r in rows if lo <= r[2] < hi]
    assert rows_of(table.removed(lo, hi)) == [r for r in rows if not lo <= r[2] < hi]
    assert rows_of(table.newest(n)) == rows[len(rows) - min(n, len(rows)) :]
    assert rows_of(table) == rows
    assert table.n_cells == len(rows)
    assert (table.pos_min(), table.pos_max()) == ((rows[0][2], rows[-1][2]) if rows else (-1, -1))


@settings(deadline=None, max_examples=150)
@given(PLACES, st.integers(0, 45), st.integers(0, 45), st.integers(-50, 50), st.integers(1, 5))
def test_moving_and_dividing(
    places: list[tuple[int, int, int, int]], p0: int, p1: int, delta: int, divisor: int
) -> None:
    table = from_cells(cells_of(places), 0)
    rows = rows_of(table)
    moved = [(a, b, p + delta, d + delta) if p0 <= p < p1 else (a, b, p, d) for a, b, p, d in rows]
    wanted = [r for r in sorted(moved, key=lambda r: r[2]) if r[2] >= 0]
    assert rows_of(table.moved(p0, max(p0, p1), delta, True)) == (wanted if p0 < p1 else rows)
    divided = [(a, b, p // divisor, d + p // divisor - p) if p0 <= p < p1 else (a, b, p, d) for a, b, p, d in rows]
    assert rows_of(table.divided(p0, p1, divisor, True)) == sorted(divided, key=lambda r: r[2])
    assert rows_of(table) == rows


def test_runs_are_few() -> None:
    ranges = [(7, 0, 64), (9, 10, 54), (9, 0, 3)]
    table = SeqRuns()
    pos = 0
    for page_id, first, n in ranges:
        for i in range(n):
            table.append(CellRange(page_id + 100, page_id, first + i, 1), pos)
            pos += 1
    assert table.n_runs == 3
    assert table.removed(20, 30).n_runs == 4
    assert from_cells(table.cells(), 0).n_runs == 3
    # A shift cuts a run in two; the shift back joins it again.
    assert table.moved(20, 200, 5, True).moved(25, 205, -5, True).n_runs == 3
    # Cells that share a position are one run of step 0.
    assert table.divided(0, 64, 32, False).runs["step"].tolist()[:2] == [0, 0]


def test_reset_undoes_appends() -> None:
    table = SeqRuns()
    table.append(CellRange(100, 0, 0, 30), 0)
    before, mark = rows_of(table), table.mark()
    for i in range(30, 300):
        table.append(CellRange(100, i // 64, i % 64, 1), i)
    table.reset(mark)
    assert rows_of(table) == before
