"""The page pool and sets of pages: counts, bounds, zeroing, journals, copies of cells."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from cext.pages import PageBudget, PagePool, PageSet, PagesFullError, gather_cells, scatter_cells

RUN = np.dtype(
    [
        ("page", "u8"),
        ("first", "i4"),
        ("count", "i4"),
        ("pos0", "i4"),
        ("step", "i4"),
        ("delta", "i4"),
        ("page_id", "i4"),
    ]
)


def taken(pages: PageSet, n: int, page_id: int = -1, after: int = 0) -> list[tuple[int, int, int]]:
    """(page_id, first, count) of n cells, kept."""
    pages.begin()
    try:
        out = [r[1:] for r in pages.take_cells(page_id, after, n)]
    except BaseException:
        pages.rollback()
        raise
    pages.commit()
    return out


def test_pages_are_zeroed_aligned_and_counted() -> None:
    pool = PagePool(100_000, PageBudget())
    pages = PageSet(pool)
    ranges = taken(pages, 200)
    assert [count for _, _, count in ranges] == [64, 64, 64, 8]
    for page_id, _, _ in ranges:
        view = pool.view(page_id)
        assert view.nbytes == 100_000 and not view.any() and view.ctypes.data % 4096 == 0
        view[:] = 255
    pages.rebuild([])
    assert pool.n_used == 0 and pool.budget.used_bytes == 0
    for page_id, _, _ in taken(pages, 640):
        assert not pool.view(page_id).any()
    with pytest.raises(KeyError):
        pool.view(10**6)


def test_cells_go_on_in_a_page_held_alone() -> None:
    pool = PagePool(640, PageBudget())
    pages = PageSet(pool)
    ((page_id, _, _),) = taken(pages, 10)
    assert taken(pages, 5, page_id, 9) == [(page_id, 10, 5)]
    twin = pages.share()
    assert pool.refs(page_id) == 2
    ((other, first, count),) = taken(pages, 3, page_id, 14)
    assert other != page_id and (first, count) == (0, 3)
    del twin
    assert pool.refs(page_id) == 1
    assert taken(pages, 2, page_id, 14) == [(page_id, 15, 2)]


def test_budget_is_shared_and_holes_are_used_at_last() -> None:
    budget = PageBudget(5 * 640)
    pools = [PagePool(640, budget), PagePool(640, budget)]
    a, b = PageSet(pools[0]), PageSet(pools[1])
    taken(a, 3 * 64)
    taken(b, 2 * 64)
    assert pools[0].n_free == 0 and budget.used_bytes == 5 * 640 and a.free_cells == 0
    with pytest.raises(PagesFullError):
        taken(a, 1)
    runs = np.zeros(1, RUN)
    runs["first"], runs["count"], runs["page_id"] = 10, 50, min(a.used())
    a.rebuild([runs])
    assert a.used_cells == 50 and a.free_cells == 2 * 64 + 14
    assert sorted(r[1:] for r in taken(a, 2 * 64 + 14)) == [(0, 10), (0, 64), (0, 64), (60, 4)]
    with pytest.raises(PagesFullError):
        taken(a, 1)


def test_rollback_restores_exactly() -> None:
    pool = PagePool(640, PageBudget(4 * 640))
    pages = PageSet(pool)
    ((page_id, _, _),) = taken(pages, 10)
    before = pages.used()
    pages.begin()
    pages.take_cells(page_id, 9, 100)
    with pytest.raises(PagesFullError):
        pages.take_cells(-1, 0, 1000)
    pages.rollback()
    assert pages.used() == before and pool.n_used == 1
    with pytest.raises(RuntimeError):
        pages.take_cells(-1, 0, 1)
    pages.begin()
    for call in (pages.begin, pages.share):
        with pytest.raises(RuntimeError):
            call()
    pages.rollback()


def test_rebuild_refuses_runs_outside() -> None:
    pages = PageSet(PagePool(640, PageBudget()))
    ((page_id, _, _),) = taken(pages, 10)
    for first, count, where in ((60, 5, page_id), (-1, 2, page_id), (0, 0, page_id), (0, 5, page_id + 1), (0, 1, -1)):
        runs = np.zeros(1, RUN)
        runs["first"], runs["count"], runs["page_id"] = first, count, where
        with pytest.raises(ValueError, match="outside"):
            pages.rebuild([runs])
    assert pages.used_cells == 10


def test_slabs_come_and_go() -> None:
    pool = PagePool(1 << 20, PageBudget())
    pages = PageSet(pool)
    assert pool.reserved_bytes == 0
    taken(pages, 64 * 40)
    grown = pool.reserved_bytes
    pages.rebuild([])
    assert pool.n_used == 0 and pool.reserved_bytes < grown
    taken(pages, 64 * 40)
    assert pool.reserved_bytes <= grown + (64 << 20)


def test_no_memory_is_an_error_not_a_crash() -> None:
    pages = PageSet(PagePool(1 << 60, PageBudget()))
    with pytest.raises(MemoryError):
        taken(pages, 1)
    assert pages.n_pages == 0


def test_threads_share_and_release() -> None:
    pool = PagePool(4096, PageBudget())
    pages = PageSet(pool)
    taken(pages, 64 * 50)

    def work(own: PageSet) -> None:
        for _ in range(100):
            twin = own.share()
            taken(twin, 64)
            del twin

    threads = [threading.Thread(target=work, args=(pages.share(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    assert pool.n_used == 50 and all(pool.refs(page_id) == 1 for page_id in pages.used())


def test_cells_are_gathered_and_scattered() -> None:
    row_bytes = np.array([4, 4, 2, 6], np.int64)
    pool = PagePool(16 * 64, PageBudget())
    pages = PageSet(pool)
    ids = [r[0] for r in taken(pages, 192)]
    rng = np.random.default_rng(0)
    for page_id in ids:
        pool.view(page_id)[:] = rng.integers(0, 256, 1024)
    where = rng.integers(0, 3, 50)
    cells = rng.integers(0, 64, 50).astype(np.int32)
    cells[10:20] = np.arange(30, 40)
    where[10:20] = 1
    addresses = np.array([pool.view(ids[i]).ctypes.data for i in where], np.uint64)
    out = np.zeros(50 * 16, np.uint8)
    gather_cells(row_bytes, addresses, cells, out)
    at = 0
    for row, offset in zip(row_bytes, np.cumsum(row_bytes) - row_bytes, strict=True):
        plane = out[at : at + 50 * row].reshape(50, row)
        for i in range(50):
            page = pool.view(ids[where[i]])
            assert np.array_equal(plane[i], page[offset * 64 + cells[i] * row :][:row])
        at += 50 * row
    fresh = taken(pages, 64)[0][0]
    target = np.full(50, pool.view(fresh).ctypes.data, np.uint64)
    scatter_cells(row_bytes, out, target, np.arange(50, dtype=np.int32))
    back = np.zeros_like(out)
    gather_cells(row_bytes, target, np.arange(50, dtype=np.int32), back)
    assert np.array_equal(out, back)


def test_arguments_are_checked() -> None:
    rows, pages = np.array([4], np.int64), np.array([4096], np.uint64)
    for cells, n_bytes in ((np.array([64], np.int32), 4), (np.array([-1], np.int32), 4), (np.array([0], np.int32), 5)):
        with pytest.raises(ValueError):
            gather_cells(rows, pages, cells, np.zeros(n_bytes, np.uint8))
        with pytest.raises(ValueError):
            scatter_cells(rows, np.zeros(n_bytes, np.uint8), pages, cells)
