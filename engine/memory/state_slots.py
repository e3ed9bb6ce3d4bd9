"""Slots of recurrent state: where each layer's part stands, and the few slots that a sequence has.

A slot is a page of a pool of its own: the state of all layers behind one token. A slot is never changed once a
transaction committed it, so sequences, clones and snapshots share it freely.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from engine.memory.base import LayerState, RunArray
from engine.memory.cells import RUN_DTYPE
from engine.memory.layout import PAGE_CELLS


class StateLayout:
    """Byte offsets in a slot: for each layer its short memory, then its state, f32, without gaps.

    Attributes:
        layers: the recurrent layers.
        slot_bytes: of all of them.
    """

    def __init__(self, layers: tuple[LayerState, ...]) -> None:
        self.layers = layers
        self._offsets: dict[int, tuple[int, int]] = {}
        n_bytes = 0
        for layer in layers:
            self._offsets[layer.il] = (n_bytes, n_bytes + 4 * layer.n_r)
            n_bytes += 4 * (layer.n_r + layer.n_s)
        self.slot_bytes = n_bytes

    def offsets(self, il: int) -> tuple[int, int]:
        """(of the short memory, of the state) of layer il."""
        return self._offsets[il]

    def describe(self) -> str:
        """The layout in a line; equal lines have equal slots."""
        return "states " + " ".join(f"{layer.il}:{layer.n_r}+{layer.n_s}" for layer in self.layers)


class Slot(NamedTuple):
    """A state.

    Attributes:
        pos: position of the token behind which it is.
        page_id, page: where it lies; page is the address.
        is_kept: whether it stays as a snapshot when the sequence goes on.
    """

    pos: int
    page_id: int
    page: int
    is_kept: bool


@dataclass(frozen=True, slots=True)
class SeqStates:
    """A sequence's state and its snapshots.

    Attributes:
        pos0: its first position.
        slots: ascending by position; the last one is where it stands.
    """

    pos0: int
    slots: tuple[Slot, ...]

    @property
    def tail(self) -> Slot:
        """Where the sequence stands."""
        return self.slots[-1]

    def back_at(self, pos: int) -> SeqStates | None:
        """The sequence as it was when its last position was pos, or None where no snapshot says."""
        slots = tuple(slot for slot in self.slots if slot.pos <= pos)
        return replace(self, slots=slots) if slots and slots[-1].pos == pos else None

    def thinned(self, n_snapshots: int) -> SeqStates:
        """With the newest n_snapshots snapshots at most."""
        return replace(self, slots=self.slots[-n_snapshots - 1 :])

    def moved(self, p0: int, p1: int, delta: int) -> SeqStates | None:
        """With the positions in [p0, p1) moved; snapshots out of order then, or below 0, are gone. None: all are."""
        slots = [slot._replace(pos=slot.pos + delta) if p0 <= slot.pos < p1 else slot for slot in self.slots]
        return self._ordered(slots, self.pos0 + delta if p0 <= self.pos0 < p1 else self.pos0)

    def divided(self, p0: int, p1: int, divisor: int) -> SeqStates | None:
        """With the positions in [p0, p1) divided; of snapshots that share a position then, the newest stays."""
        slots = [slot._replace(pos=slot.pos // divisor) if p0 <= slot.pos < p1 else slot for slot in self.slots]
        return self._ordered(slots, self.pos0 // divisor if p0 <= self.pos0 < p1 else self.pos0)

    def _ordered(self, slots: list[Slot], pos0: int) -> SeqStates | None:
        tail = slots[-1]
        if tail.pos < 0:
            return None
        good: list[Slot] = [tail]
        for slot in reversed(slots[:-1]):
            if 0 <= slot.pos < good[-1].pos:
                good.append(slot)
        return SeqStates(min(max(pos0, 0), good[-1].pos), tuple(reversed(good)))


def runs_of(seqs: Iterable[SeqStates]) -> RunArray:
    """KVRun[n], whole pages of all slots, for `PageSet.rebuild`."""
    ids = [slot.page_id for states in seqs for slot in states.slots]
    runs: RunArray = np.zeros(len(ids), RUN_DTYPE)
    runs["page_id"], runs["count"] = ids, PAGE_CELLS
    return runs
