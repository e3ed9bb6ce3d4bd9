"""An encoder-decoder under random operations: what it says is what numpy says of the sources and tokens it must have."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest

import engine
from engine.errors import BatchError, ContextFullError, ParamError, StateFileError
from engine.memory import EncDecMemory
from engine.types import F64Array
from tests.engine.oracle_cases import DATA, context, nmse
from tests.engine.t5_numpy import NumpyT5

Batch, DecodeStatus = engine.Batch, engine.DecodeStatus
N_SEQ, N_STEPS = 4, 400
OPERATIONS = {
    "encode": 6, "encode_aborted": 3, "decode": 10, "compare": 8, "step_back": 3, "copy": 6, "keep": 1, "clear": 1,
    "tidy": 2, "clone": 4, "load": 4,
}  # fmt: skip


@cache
def oracle() -> NumpyT5:
    path = DATA / "t5" / "model.gguf"
    with engine.gguf.open_gguf(path) as gguf:
        return NumpyT5({name: engine.read_tensor(path, name) for name in gguf.tensors}, 2, 2)


@cache
def encoded(source: tuple[int, ...]) -> F64Array:
    return oracle().encode(source)


@dataclass(slots=True)
class Ledger:
    """The source of each sequence, by the number of its encode, and the tokens behind it."""

    source: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    tokens: dict[int, list[int]] = field(default_factory=dict)

    def copy(self) -> Ledger:
        return Ledger(dict(self.source), {s: list(tokens) for s, tokens in self.tokens.items()})


class Random:
    """One context with its ledger and a clone of its memory.

    Attributes:
        n_refused, n_compared: operations that were refused and changed nothing; logits that were compared.
    """

    def __init__(self, seed: int, **params: object) -> None:
        self.rng = random.Random(seed)
        self.ctx = context("t5", **params)
        self.ledger = Ledger()
        self.twin: tuple[EncDecMemory, Ledger, bytes] | None = None
        self.n_encodes = self.n_refused = self.n_compared = 0

    @property
    def memory(self) -> EncDecMemory:
        memory = self.ctx.get_kv_self()
        assert isinstance(memory, EncDecMemory)
        return memory

    def ids(self, n_max: int) -> list[int]:
        return self.rng.choices(range(160), k=self.rng.randint(1, n_max))

    def seq(self) -> int:
        return self.rng.randrange(N_SEQ)

    def encode(self) -> None:
        """Sources of some sequences in one batch; one of them perhaps shared."""
        groups = [tuple(self.rng.sample(range(N_SEQ), self.rng.choice((1, 1, 2))))]
        other = self.seq()
        groups += [(other,)] if other not in groups[0] else []
        sources = [tuple(self.ids(40)) for _ in groups]
        before = self.memory.state_hash()
        try:
            self.ctx.encode(Batch.join([Batch.from_tokens(x, 0, ids) for x, ids in zip(sources, groups, strict=True)]))
        except ContextFullError:
            assert self.memory.state_hash() == before
            self.n_refused += 1
            return
        for source, ids in zip(sources, groups, strict=True):
            self.n_encodes += 1
            for s in ids:
                self.ledger.source[s], self.ledger.tokens[s] = (self.n_encodes, source), []

    def encode_aborted(self) -> None:
        before = self.memory.state_hash()
        self.ctx.abort_flag[0] = 1
        with contextlib.suppress(ContextFullError):
            assert self.ctx.encode(Batch.from_tokens(self.ids(9), 0, (0, 2))) is DecodeStatus.ABORTED
        self.ctx.abort_flag[0] = 0
        assert self.memory.state_hash() == before

    def decode(self) -> None:
        """Tokens of two sequences; refused where one has no source."""
        before = self.memory.state_hash()
        parts = {s: self.ids(6) for s in self.rng.sample(range(N_SEQ), 2)}
        try:
            self.ctx.decode(Batch.join([Batch.from_tokens(tokens, None, s) for s, tokens in parts.items()]))
        except (BatchError, ContextFullError) as error:
            assert isinstance(error, ContextFullError) or not parts.keys() <= self.ledger.source.keys()
            assert self.memory.state_hash() == before
            self.n_refused += 1
            return
        for s, tokens in parts.items():
            self.ledger.tokens[s] += tokens

    def compare(self) -> None:
        s = self.seq()
        if s not in self.ledger.source:
            return
        tokens = [*self.ledger.tokens[s], self.rng.randrange(160)]
        try:
            self.ctx.decode(Batch.from_tokens(tokens[-1:], None, s))
        except ContextFullError:
            self.n_refused += 1
            return
        self.ledger.tokens[s] = tokens
        want = oracle().decode(tokens, encoded(self.ledger.source[s][1]))[-1].astype(np.float32)
        assert nmse(self.ctx.get_logits_ith(-1), want) <= 1e-10
        self.n_compared += 1

    def step_back(self) -> None:
        s = self.rng.choice([-1, *range(N_SEQ)])
        at = self.rng.choice((0, 0, self.rng.randint(0, 20)))
        assert self.memory.seq_rm(s, at, -1)
        for each in range(N_SEQ) if s < 0 else (s,):
            del self.ledger.tokens.get(each, [])[at:]

    def copy(self) -> None:
        """All of a sequence, or its beginning; refused where that would mix answers to two sources."""
        a, b = self.seq(), self.seq()
        end = self.rng.choice((-1, self.rng.randint(1, 20)))
        ledger, before = self.ledger, self.memory.state_hash()
        ours, theirs = ledger.tokens.get(a, []), ledger.tokens.get(b, [])
        taken = len(ours) if end < 0 else min(end, len(ours))
        rest = theirs[taken:] if not taken else theirs[len(theirs) if end < 0 else end :]
        is_same = ledger.source.get(a, (0,))[0] == ledger.source.get(b, (0,))[0]
        try:
            self.memory.seq_cp(a, b, 0, end)
        except ParamError:
            assert not is_same and rest
            assert self.memory.state_hash() == before
            self.n_refused += 1
            return
        assert a == b or is_same or not rest
        if a in ledger.source and a != b:
            ledger.source[b] = ledger.source[a]
            ledger.tokens[b] = ours[:taken] + rest
            if rest:  # it was computed behind other tokens, which no fresh run would give again
                assert self.memory.seq_rm(b, taken, -1)
                del ledger.tokens[b][taken:]

    def keep(self) -> None:
        s = self.seq()
        self.memory.seq_keep(s)
        for part in (self.ledger.source, self.ledger.tokens):
            for other in set(part) - {s}:
                del part[other]

    def clear(self) -> None:
        self.memory.clear()
        self.ledger = Ledger()

    def tidy(self) -> None:
        self.memory.defrag()
        self.memory.update()

    def clone(self) -> None:
        """A clone, or the clone in the memory's place: it has not noticed anything."""
        if self.twin is None:
            twin = self.memory.clone()
            self.twin = twin, self.ledger.copy(), twin.state_hash()
            return
        memory, ledger, digest = self.twin
        assert memory.state_hash() == digest
        old = self.ctx.set_kv_self(memory)
        assert old is not None
        old.close()
        self.ledger, self.twin = ledger, None

    def load(self) -> None:
        """What was saved of a sequence, as another one; or of all, seldom damaged."""
        if self.rng.random() < 0.3:
            data = bytearray(self.ctx.state_get_data())
            data[self.rng.randrange(len(data))] ^= 4
            before = self.memory.state_hash()
            with pytest.raises((StateFileError, ContextFullError)):
                self.ctx.state_set_data(bytes(data))
            assert self.memory.state_hash() == before
            return
        a, b = self.seq(), self.seq()
        try:
            self.ctx.state_seq_set_data(b, self.ctx.state_seq_get_data(a))
        except ContextFullError:
            self.n_refused += 1
            return
        self.n_encodes += 1
        for part in (self.ledger.source, self.ledger.tokens):
            if a != b:
                part.pop(b, None)
        if a in self.ledger.source:  # a source of its own from now on, with the same values
            self.ledger.source[b] = (self.n_encodes, self.ledger.source[a][1])
            self.ledger.tokens[b] = list(self.ledger.tokens[a])

    def check(self) -> None:
        assert self.memory.seq_ids() == tuple(sorted(self.ledger.source))
        for s in range(N_SEQ):
            assert self.memory.seq_pos_max(s) == len(self.ledger.tokens.get(s, [])) - 1
            assert self.memory.n_source(s) == len(self.ledger.source.get(s, (0, ()))[1])


@pytest.mark.parametrize(("seed", "kv_bytes_max"), [(1, None), (2, 400_000), (3, None)])
def test_random_operations(seed: int, kv_bytes_max: int | None) -> None:
    machine = Random(seed, n_ctx=96, n_batch=96, n_ubatch=7, kv_bytes_max=kv_bytes_max)
    names = machine.rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=N_STEPS)
    for name in names:
        getattr(machine, name)()
        machine.check()
    assert machine.n_compared > 30
    assert machine.n_refused > 5
    if machine.twin is not None:
        machine.twin[0].close()
    machine.memory.clear()
    assert machine.memory.stats().n_pages == 0
    machine.ctx.close()
