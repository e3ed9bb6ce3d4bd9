"""What a context must remember, the slow and obvious way: for each sequence its positions and which token stands there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.engine.memory.model import Model


class Written(NamedTuple):
    """A token as it was computed.

    Attributes:
        token: its id.
        before: the number of what stood right before it, or -1.
        is_clean: whether the whole sequence before it was what a fresh run of its tokens would have made.
    """

    token: int
    before: int
    is_clean: bool


class Book:
    """All tokens that contexts of one model computed, by number; sequences, clones and files refer to them."""

    def __init__(self) -> None:
        self.written: dict[int, Written] = {}
        self._n = 0

    def add(self, written: Written) -> int:
        """The number of a new one."""
        self._n += 1
        self.written[self._n] = written
        return self._n

    def keep(self, ledgers: Iterable[Ledger]) -> None:
        """Forget what none of these ledgers refers to."""
        live = {number for ledger in ledgers for tokens in ledger.model.seqs.values() for _, number in tokens}
        self.written = {number: written for number, written in self.written.items() if number in live}


class Ledger:
    """The tokens of one context's sequences.

    Attributes:
        book: what they refer to.
        model: for each sequence (position, number) in order, and what operations do to it.
    """

    def __init__(self, book: Book, model: Model | None = None) -> None:
        self.book, self.model = book, model or Model()

    def copy(self) -> Ledger:
        """The same, apart."""
        return Ledger(self.book, self.model.copy())

    def positions(self, seq_id: int) -> list[int]:
        """Where the tokens of a sequence stand."""
        return [pos for pos, _ in self.model.seq(seq_id)]

    def end(self, seq_id: int) -> int:
        """Where the next token goes."""
        return self.model.pos_max(seq_id) + 1

    def compute(self, seq_ids: tuple[int, ...], pos0: int, tokens: list[int]) -> None:
        """Tokens that were decoded at pos0 and behind, seen by the first of the sequences."""
        past = self.model.seq(seq_ids[0])
        is_clean = self.clean_tokens(seq_ids[0]) is not None
        numbers: list[int] = [past[-1][1]] if past else [-1]
        for token in tokens:
            numbers.append(self.book.add(Written(token, numbers[-1], is_clean)))
        self.model.add_tokens(seq_ids, list(range(pos0, pos0 + len(tokens))), numbers[1:])

    def adopt(self, other: Ledger, source: int, target: int) -> None:
        """A sequence of another ledger of the same book in the place of one of this."""
        assert other.book is self.book
        tokens = list(other.model.seq(source))
        self.model.rm(target, 0, -1)
        if tokens:
            self.model.seqs[target] = tokens

    def clean_tokens(self, seq_id: int) -> list[int] | None:
        """The tokens of a sequence that is what a fresh run of them would make, wherever it stands; else None."""
        tokens: list[int] = []
        before, pos0 = -1, -1
        for i, (pos, number) in enumerate(self.model.seq(seq_id)):
            pos0 = pos if i == 0 else pos0
            written = self.book.written[number]
            if pos != pos0 + i or written.before != before or not written.is_clean:
                return None
            tokens.append(written.token)
            before = number
        return tokens
