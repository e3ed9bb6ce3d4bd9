"""Heights of many rows with quick sums: which row is at a place, and where a row begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


class HeightTree:
    """A Fenwick tree over heights in px.

    One height changes, and the sum before a row is found, in time that grows with the logarithm of the rows.

    Source: P. M. Fenwick, A New Data Structure for Cumulative Frequency Tables, 1994.
    """

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._tree: list[int] = [0]  # [n + 1], node i holds the sum of the `i & -i` heights up to i

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, i: int) -> int:
        return self._heights[i]

    def assign(self, heights: Sequence[int]) -> None:
        """Replace all heights."""
        sums = list(accumulate(heights, initial=0))
        self._tree = [total - sums[node & (node - 1)] if node else 0 for node, total in enumerate(sums)]
        self._heights = list(heights)

    def append(self, height: int) -> None:
        """Add a row at the end."""
        node = len(self._heights) + 1
        below = self.total() - self.before(node - (node & -node))
        self._heights.append(height)
        self._tree.append(below + height)

    def truncate(self, n: int) -> None:
        """Keep the first `n` rows."""
        del self._heights[n:]
        del self._tree[n + 1 :]

    def set(self, i: int, height: int) -> None:
        """Change one height."""
        delta = height - self._heights[i]
        if delta:
            self._heights[i] = height
            node = i + 1
            while node < len(self._tree):
                self._tree[node] += delta
                node += node & -node

    def before(self, i: int) -> int:
        """Return the sum of the heights of rows 0 to i - 1."""
        total = 0
        while i > 0:
            total += self._tree[i]
            i -= i & -i
        return total

    def total(self) -> int:
        """Return the sum of all heights."""
        return self.before(len(self._heights))

    def find(self, y: int) -> tuple[int, int]:
        """Return the row at a place and how far below the row's top it is; the last row for places past the end.

        Raises:
            IndexError: there are no rows.
        """
        if not self._heights:
            raise IndexError("no rows")
        node, rest = 0, max(y, 0)
        step = 1 << (len(self._tree) - 1).bit_length()
        while step:
            if node + step < len(self._tree) and self._tree[node + step] <= rest:
                node += step
                rest -= self._tree[node]
            step >>= 1
        if node >= len(self._heights):
            node = len(self._heights) - 1
            rest = y - self.before(node)
        return node, rest
