"""What the two halves of a memory do alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, TypeVar

from engine.io import BlockReader, BlockWriter
from engine.memory.base import Memory, MemoryStats, StagedLoad, Tx
from engine.memory.kv import KVCache
from engine.memory.row_log import RowSink, RowSource

Other = TypeVar("Other", bound=Memory)


class PairMemory(Memory, Generic[Other]):
    """A cache and another memory that has what the cache does not, one beside the other.

    Args:
        cache: of the tokens' own keys and values.
        other: what else a sequence has.
    """

    def __init__(self, cache: KVCache, other: Other) -> None:
        self.cache, self.other = cache, other

    def stats(self) -> MemoryStats:
        """Pages and bytes of both; cells and tokens of the cache."""
        a, b = self.cache.stats(), self.other.stats()
        return replace(a, n_pages=a.n_pages + b.n_pages, used_bytes=a.used_bytes + b.used_bytes)

    def need_bytes(self, n_tokens: int, n_ubatch: int) -> int:
        """Bytes of both for a sequence of n_tokens; those of a source as long, where the other keeps one."""
        return self.cache.need_bytes(n_tokens, n_ubatch) + self.other.need_bytes(n_tokens, n_ubatch)

    def clear(self, data: bool = False) -> None:
        """Forget all sequences in both."""
        self.cache.clear(data)
        self.other.clear(data)

    def seq_keep(self, seq_id: int) -> None:
        """Forget every other sequence in both."""
        self.cache.seq_keep(seq_id)
        self.other.seq_keep(seq_id)

    def close(self) -> None:
        """Let go of all that both hold."""
        self.cache.close()
        self.other.close()

    def state_hash(self) -> bytes:
        """Digests of both."""
        return self.cache.state_hash() + self.other.state_hash()

    def save(self, writer: BlockWriter, seq_id: int | None = None, sink: RowSink | None = None) -> None:
        """Write the blocks of both; only the cache's rows go to a sink, for nothing else grows by what is new."""
        self.cache.save(writer, seq_id, sink)
        self.other.save(writer, seq_id)

    def _load_both(
        self, reader: BlockReader, seq_id: int | None, convert_kv: bool, source: RowSource | None
    ) -> tuple[StagedLoad, StagedLoad]:
        """Read what `save` wrote; nothing is held where one of the two fails."""
        cache = self.cache.load(reader, seq_id, convert_kv, source)
        try:
            return cache, self.other.load(reader, seq_id, convert_kv)
        except BaseException:
            cache.discard()
            raise


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
