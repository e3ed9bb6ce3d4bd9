"""The Fenwick tree of heights against plain sums."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.widgets.conversation.heights import HeightTree

HEIGHTS = st.lists(st.integers(0, 500), min_size=1, max_size=70)


def tree_of(heights: list[int]) -> HeightTree:
    tree = HeightTree()
    tree.assign(heights)
    return tree


@given(HEIGHTS, st.data())
def test_sums_and_places(heights: list[int], data: st.DataObject) -> None:
    tree = tree_of(heights)
    for _ in range(3):
        i = data.draw(st.integers(0, len(heights) - 1))
        heights[i] = data.draw(st.integers(0, 500))
        tree.set(i, heights[i])
    added = data.draw(st.integers(0, 500))
    tree.append(added)
    heights.append(added)
    sums = [0, *accumulate(heights)]
    assert [tree.before(i) for i in range(len(heights) + 1)] == sums
    assert tree.total() == sums[-1]
    y = data.draw(st.integers(0, sums[-1] + 10))
    i, rest = tree.find(y)
    assert sums[i] + rest == y
    assert 0 <= rest < heights[i] or i == len(heights) - 1


@given(HEIGHTS, st.integers(0, 70))
def test_truncate_then_append(heights: list[int], n: int) -> None:
    tree = tree_of(heights)
    n = min(n, len(heights))
    tree.truncate(n)
    tree.append(7)
    assert len(tree) == n + 1
    assert tree.total() == sum(heights[:n]) + 7
    assert tree[n] == 7


def test_no_rows() -> None:
    tree = tree_of([])
    assert tree.total() == 0
    with pytest.raises(IndexError):
        tree.find(0)
