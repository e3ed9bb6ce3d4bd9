"""What the memories of one kind of state ask before an operation; a hybrid memory leaves it to its two halves."""

from __future__ import annotations

from abc import ABC

from engine.errors import ParamError, UnsupportedCallError
from engine.memory.base import Memory, MemoryParams, MemorySpec, StagedLoad, Tx


class CheckedMemory(Memory, ABC):
    """A memory with its specification and at most one open transaction or staged load."""

    spec: MemorySpec
    params: MemoryParams
    _tx: Tx | StagedLoad | None

    def _idle(self) -> None:
        if self._tx is not None:
            raise RuntimeError("a transaction is open on this memory")

    def _seq(self, seq_id: int) -> int:
        if not 0 <= seq_id < self.params.n_seq_max:
            raise ParamError(f"sequence {seq_id} is out of range: n_seq_max is {self.params.n_seq_max}")
        return seq_id

    def _check_can_shift(self, call: str) -> None:
        if not self.spec.can_shift:
            raise UnsupportedCallError(call, "a memory of this model: its positions cannot be moved")
