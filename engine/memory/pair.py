"""What the two halves of a memory do in step."""

from __future__ import annotations

from engine.memory.base import StagedLoad, Tx


class PairTx(Tx):
    """Two transactions that end together; what is placed where is said by the kinds.

    Args:
        first, second: in the order in which they end.
    """

    def __init__(self, first: Tx, second: Tx) -> None:
        self._first, self._second = first, second

    def commit(self) -> None:
        """Keep everything that was placed."""
        self._first.commit()
        self._second.commit()

    def rollback(self) -> None:
        """Bring back exactly the state that `begin` saw."""
        self._first.rollback()
        self._second.rollback()


class PairStagedLoad(StagedLoad):
    """Two loads that become part of the memory together.

    Args:
        first: the one that says where sequences end.
    """

    def __init__(self, first: StagedLoad, second: StagedLoad) -> None:
        self._first, self._second = first, second

    def ends(self) -> dict[int, int]:
        """The newest position of each sequence that was read."""
        return self._first.ends()

    def swap_in(self) -> None:
        """Replace the sequence, or all, in both."""
        self._first.swap_in()
        self._second.swap_in()

    def discard(self) -> None:
        """Let go of both."""
        self._first.discard()
        self._second.discard()
