"""One context under random operations, with its ledger and clones."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import engine
from engine.errors import BatchError, ContextFullError, EngineError, ParamError, StateFileError
from engine.memory import HybridMemory, KVCache, Memory
from tests.engine.memory_kinds import MemoryKind
from tests.engine.oracle_cases import nmse
from tests.soak.ledger import Book, Ledger

N_SEQ = 4
N_TWINS = 3
VOCABULARY = range(1, 256)


class SoakContext:
    """A context, what it must remember, and clones of its memory that must not notice what happens to it.

    Args:
        kind: of the memory.
        book: of all contexts of the model.
        tolerance: NMSE of its logits to those of a fresh run without a cache.
        params: of the context.

    Attributes:
        n_refused: operations that were refused and changed nothing; n_compared: logits that were compared.
    """

    def __init__(self, kind: MemoryKind, book: Book, rng: random.Random, tolerance: float, **params: object) -> None:
        self.kind, self.rng, self.tolerance = kind, rng, tolerance
        self.ctx = kind.context(n_seq_max=N_SEQ, **params)
        self.fresh = engine.ContextBase(self.ctx.get_model(), engine.ContextParams(n_ctx=512, n_threads=1))
        self.ledger = Ledger(book)
        self.twins: list[tuple[Memory, Ledger, bytes]] = []
        self.n_refused = self.n_compared = 0

    @property
    def memory(self) -> Memory:
        """The live memory."""
        return self.ctx.get_kv_self()

    def _seq(self) -> int:
        return self.rng.randrange(N_SEQ)

    def _tokens(self, n_max: int) -> list[int]:
        return self.rng.choices(VOCABULARY, k=self.rng.randint(1, n_max))

    def _range(self, seq_id: int) -> tuple[int, int]:
        """Any range; of a memory with states seldom one that is refused at once."""
        end = self.ledger.end(seq_id)
        p0, p1 = self.rng.randint(-1, end + 2), self.rng.randint(-1, end + 2)
        return (p0, -1) if self.kind.has_states and self.rng.random() < 0.8 else (p0, p1)

    def _decode(self, batch: engine.Batch, *refusals: type[EngineError]) -> bool:
        """Whether a batch was computed; room is made first, for that lets go of what no answer needs."""
        self.memory.prepare(batch.n_tokens)
        return self._try(lambda: self.ctx.decode(batch), ContextFullError, *refusals)

    def _try(self, operation: Callable[[], object], *refusals: type[EngineError]) -> bool:
        """Whether an operation was done; where it was refused, nothing may have changed."""
        before = self.memory.state_hash()
        try:
            return operation() is not False
        except refusals:
            assert self.memory.state_hash() == before
            self.n_refused += 1
            return False

    # -- decoding

    def decode(self) -> None:
        """Some tokens of some sequences in one batch, in turns or one sequence after the other."""
        parts = [
            (s, self._tokens(self.rng.choice((1, 4, 40))))
            for s in self.rng.sample(range(N_SEQ), self.rng.choice((1, 1, 3)))
        ]
        begins = {s: self.ledger.end(s) or self.rng.choice((0, 0, 3)) for s, _ in parts}
        singles = [engine.Batch.from_tokens([t], begins[s] + i, s) for s, tokens in parts for i, t in enumerate(tokens)]
        if len(parts) > 1 and self.rng.random() < 0.5:
            singles.sort(key=lambda batch: int(batch.pos[0]) if batch.pos is not None else 0)
        batch = engine.Batch.join(singles)
        if self._decode(batch):
            for s, tokens in parts:
                self.ledger.compute((s,), begins[s], tokens)

    def decode_shared(self) -> None:
        """Tokens that two sequences share, behind the same past, and what each goes on with, in one batch."""
        a, b = self.rng.sample(range(N_SEQ), 2)
        if self.ledger.model.seq(a) != self.ledger.model.seq(b):
            return
        tokens, begin = self._tokens(9), self.ledger.end(a)
        end = begin + len(tokens)
        tails = [(s, self._tokens(5)) for s in (a, b) if self.rng.random() < 0.5]
        batch = engine.Batch.join(
            [engine.Batch.from_tokens(tokens, begin, (a, b))]
            + [engine.Batch.from_tokens(tail, end, s) for s, tail in tails]
        )
        if self._decode(batch, *([BatchError] if self.kind.has_states else [])):
            self.ledger.compute((a, b), begin, tokens)
            for s, tail in tails:
                self.ledger.compute((s,), end, tail)

    def decode_nonsense(self) -> None:
        """Positions that do not go on, or a sequence that cannot be."""
        s = self._seq()
        batch = engine.Batch.from_tokens([1, 2], self.ledger.end(s) + 7, s if self.ledger.end(s) else N_SEQ)
        assert not self._decode(batch, BatchError)

    def abort(self) -> None:
        """A decode that another thread stops at any moment, perhaps too late."""
        s, tokens = self._seq(), self._tokens(60)
        begin, delay_s = self.ledger.end(s), self.rng.choice((0.0, 0.0002, 0.001))
        self.memory.prepare(len(tokens))
        before = self.memory.state_hash()

        def stop() -> None:
            time.sleep(delay_s)
            self.ctx.abort_flag[0] = 1

        thread = threading.Thread(target=stop)
        thread.start()
        try:
            status = self.ctx.decode(engine.Batch.from_tokens(tokens, begin, s))
        except ContextFullError:
            status = engine.DecodeStatus.ABORTED
        thread.join()
        self.ctx.abort_flag[0] = 0
        if status is engine.DecodeStatus.OK:
            self.ledger.compute((s,), begin, tokens)
        else:
            assert self.memory.state_hash() == before

    def compare(self) -> None:
        """The logits of a sequence's next token are those of a fresh run without a cache."""
        s, token = self._seq(), self.rng.choice(VOCABULARY)
        tokens, begin = self.ledger.clean_tokens(s), self.ledger.end(s)
        if tokens is None or not self._decode(engine.Batch.from_tokens([token], begin, s)):
            return
        self.ledger.compute((s,), begin, [token])
        self.fresh.decode(engine.Batch.from_tokens([*tokens, token]))
        difference = nmse(self.ctx.get_logits_ith(-1), self.fresh.get_logits_ith(-1))
        assert difference <= self.tolerance, f"{difference} after {len(tokens)} tokens"
        self.n_compared += 1

    def change_threads(self) -> None:
        """Another number of threads changes no bit."""
        self.ctx.set_n_threads(self.rng.randint(1, 2), self.rng.randint(1, 3))

    # -- sequence operations

    def seq_rm(self) -> None:
        """A range, also of all sequences; where it is refused, one that can be gone back to is not."""
        s = self.rng.choice((-1, *range(N_SEQ)))
        p0, p1 = self._range(max(s, 0))
        before = self.memory.state_hash()
        if self.memory.seq_rm(s, p0, p1):
            self.ledger.model.rm(s, p0, p1)
        else:
            assert self.kind.name != "unified" and self.memory.state_hash() == before
            self.n_refused += 1

    def step_back(self) -> None:
        """To the newest position that can be gone back to."""
        s = self._seq()
        at = self.memory.seq_pos_reentry(s, max(self.ledger.end(s) - self.rng.randint(1, 30), 0))
        assert self.memory.seq_rm(s, at, -1)
        self.ledger.model.rm(s, at, -1)

    def forget(self) -> None:
        """A whole sequence, which never fails; seldom all others or all."""
        s, choice = self._seq(), self.rng.random()
        if choice < 0.1:
            self.memory.clear()
            self.ledger.model.rm(-1, 0, -1)
        elif choice < 0.3:
            self.memory.seq_keep(s)
            self.ledger.model.keep(s)
        else:
            assert self.memory.seq_rm(s, -1, -1)
            self.ledger.model.rm(s, 0, -1)

    def seq_cp(self) -> None:
        """A whole sequence or, where there are no states, any range."""
        a, b = self._seq(), self._seq()
        p0, p1 = (0, -1) if self.kind.has_states or self.rng.random() < 0.6 else self._range(a)
        if self._try(lambda: self.memory.seq_cp(a, b, p0, p1), ParamError):
            self.ledger.model.cp(a, b, p0, p1)

    def seq_add(self) -> None:
        """A whole sequence or, where there are no states, any range."""
        s = self._seq()
        if self.kind.has_states or self.rng.random() < 0.5:
            first = min(self.ledger.positions(s), default=0)
            p0, p1, delta = 0, -1, self.rng.randint(-first, 20)
        else:
            (p0, p1), delta = self._range(s), self.rng.randint(-20, 20)
        if self._try(lambda: self.memory.seq_add(s, p0, p1, delta), ParamError):
            self.ledger.model.add(s, p0, p1, delta)

    def seq_div(self) -> None:
        """Any range; the whole of a state's sequence."""
        s, divisor = self._seq(), self.rng.randint(1, 3)
        if self.kind.has_states:
            return
        p0, p1 = self._range(s)
        if self._try(lambda: self.memory.seq_div(s, p0, p1, divisor), ParamError, ContextFullError):
            self.ledger.model.div(s, p0, p1, divisor)

    def shift_context(self) -> None:
        """What a full chat does: the older half behind a prefix leaves, the newer one moves up."""
        s = self._seq()
        pos = self.ledger.positions(s)
        if self.kind.has_states or len(pos) < 8 or len(pos) != pos[-1] + 1:
            return
        n_keep = self.rng.randint(0, 4)
        n_discard = (len(pos) - n_keep) // 2
        if self.memory.seq_rm(s, n_keep, n_keep + n_discard):
            self.ledger.model.rm(s, n_keep, n_keep + n_discard)
            self.memory.seq_add(s, n_keep + n_discard, -1, -n_discard)
            self.ledger.model.add(s, n_keep + n_discard, -1, -n_discard)

    def tidy(self) -> None:
        """Pending work changes no answer."""
        if self.rng.random() < 0.5:
            self.memory.defrag()
        self._try(self.memory.update, ContextFullError)

    # -- copies and files

    def clone(self) -> None:
        """A clone, or one of the clones in the memory's place; none has noticed anything."""
        if len(self.twins) < N_TWINS:
            twin = self.memory.clone()
            self.twins.append((twin, self.ledger.copy(), twin.state_hash()))
            return
        twin, ledger, digest = self.twins.pop(self.rng.randrange(N_TWINS))
        assert twin.state_hash() == digest
        if self.rng.random() < 0.5:
            old = self.ctx.set_kv_self(twin)
            assert old is not None
            twin, self.ledger = old, ledger
        twin.close()

    def save(self, seq_id: int) -> bytes:
        """One sequence, or all for -1."""
        return self.ctx.state_get_data() if seq_id < 0 else self.ctx.state_seq_get_data(seq_id)

    def load(self, other: SoakContext) -> None:
        """What another context of the same model saved: one sequence or all, seldom damaged."""
        source, target = self.rng.choice((-1, *range(N_SEQ))), self._seq()
        data = other.save(source)
        if self.rng.random() < 0.2:
            at = self.rng.randrange(len(data))
            bad = data[:at] + bytes([data[at] ^ 1 << self.rng.randrange(8)]) + data[at + 1 :]
            assert not self._try(lambda: self._put(source, target, bad), StateFileError, ContextFullError)
            return
        if not self._try(lambda: self._put(source, target, data), StateFileError, ContextFullError):
            return
        if source < 0:
            self.ledger = other.ledger.copy()
        else:
            self.ledger.adopt(other.ledger, source, target)

    def _put(self, source: int, target: int, data: bytes) -> None:
        if source < 0:
            self.ctx.state_set_data(data, convert_kv=True)
        else:
            self.ctx.state_seq_set_data(target, data, convert_kv=True)

    # -- looking

    def check(self) -> None:
        """Every sequence has the positions that the ledger says."""
        memory = self.memory
        assert memory.seq_ids() == tuple(sorted(self.ledger.model.seqs))
        cache = memory.cache if isinstance(memory, HybridMemory) else memory
        for s in range(N_SEQ):
            assert memory.seq_pos_max(s) == self.ledger.model.pos_max(s)
            if isinstance(cache, KVCache):
                assert cache.stores[0].table(s).cells().pos.tolist() == self.ledger.positions(s)

    def close(self) -> None:
        """Let everything go; clones are what they were, and no page stays."""
        for twin, _, digest in self.twins:
            assert twin.state_hash() == digest
            twin.close()
        self.memory.clear()
        assert self.memory.stats().n_pages == 0
        self.ctx.close()
        self.fresh.close()
