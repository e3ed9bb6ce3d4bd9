"""A chat's memory: which tokens the cache holds, what of a new prompt it can reuse, and who leaves when it is full.

Stands between `engine.generate`, the loop, and the context: the session decides what is computed, and computes nothing
twice that the cache still has.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.errors import BatchError, ContextFullError, StateFileError
from engine.sampling import Sampler, SamplerParams
from engine.session_file import SessionSnapshot, pack_books, unpack_books
from engine.session_log import SessionLog
from engine.state import SavedTokens
from engine.turns import Span, Turn, choose_leaving, cut_spans, ranges_of, split_bos
from engine.types import F32Array, QuantType


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """n_done of the n_total tokens that were not ready are computed; n_reused were ready."""

    n_done: int
    n_total: int
    n_reused: int


@dataclass(frozen=True, slots=True)
class TurnsLeft:
    """Turns left the context to make room; they stay out until they are asked back.

    Attributes:
        keys: of the turns, oldest first.
        n_tokens: that they had.
        n_recomputed: tokens that stay but must be computed again, for the memory could not shift them.
    """

    keys: tuple[str, ...]
    n_tokens: int
    n_recomputed: int


Overflow = Literal["shift", "stop"]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a prompt needs.

    Attributes:
        n_prompt: its tokens; n_ready of them are in the cache.
        n_left: tokens with room behind it, once n_leaving turns have left; negative: it does not fit.
    """

    n_prompt: int
    n_ready: int
    n_left: int
    n_leaving: int


class Session:
    """The memory of one chat in one sequence of a context.

    Args:
        ctx: its context; other sequences of it may belong to other sessions.
        seq_id: the sequence.

    Attributes:
        tokens: ids that the cache holds, at positions 0, 1, ...
        pending: ids of the prompt behind them that are not computed yet.
        spans: whose tokens and pending are, in order; the last turn grows with the reply.
        out_keys: keys of turns that left. Take a key out to ask the turn back; its tokens are computed again then.
        sampler_state: where the last reply left the generator of random numbers.
        overflow: when it is full the oldest turns leave ("shift"), or nothing does ("stop").
        n_ctx_max: tokens that it may hold, where that is fewer than its sequence; 0: all.
        kv_type_on_disk: K and V are kept in this type in a file; None: as in the cache.

    Thread: one at a time, the engine thread.
    """

    def __init__(self, ctx: Context, seq_id: int = 0) -> None:
        self.ctx, self.seq_id = ctx, seq_id
        self.tokens: list[int] = []
        self.pending: list[int] = []
        self.spans: list[Span] = []
        self.out_keys: set[str] = set()
        self.sampler_state = b""
        self.overflow: Overflow = "shift"
        self.n_ctx_max = 0
        self.kv_type_on_disk: QuantType | None = None
        self._births = array("q")  # a number for each token of `tokens`, never given twice
        self._n_born = 0
        self._log: SessionLog | None = None

    @property
    def n_ctx(self) -> int:
        """Tokens that it may hold."""
        n_ctx = self.ctx.n_ctx_per_seq()
        return min(n_ctx, self.n_ctx_max) if self.n_ctx_max else n_ctx

    @property
    def n_used(self) -> int:
        """Tokens that the cache holds now."""
        return len(self.tokens)

    @property
    def is_ready(self) -> bool:
        """Whether all of the prompt is computed, so that there are logits."""
        return not self.pending

    @property
    def is_full(self) -> bool:
        """Whether no further token has room."""
        return len(self.tokens) >= self.n_ctx

    # -- a prompt ----------------------------------------------------------------------------------------------------

    def begin(self, turns: Sequence[Turn], n_predict: int) -> TurnsLeft | None:
        """Take a prompt and cut the cache down to what the two have in common. Computes nothing.

        Args:
            turns: the whole conversation; those in out_keys are passed over, but never the last.
            n_predict: tokens that should have room behind it, -1 for any number; at most a quarter of the context is
                made free for them.

        Returns: the turns that had to leave, if any had to.
        Raises:
            ContextFullError: the turns that must stay do not fit, or none may leave; nothing is changed.
            BatchError: no tokens.
        """
        kept = self.kept(turns)
        prompt = [token for turn in kept for token in turn.tokens]
        if not prompt:
            raise BatchError("the prompt is empty")
        spans = [Span(turn.key, len(turn.tokens), turn.pinned) for turn in kept]
        leaving = self._choose_leaving(spans, n_predict)
        if leaving and self.overflow == "stop":
            raise ContextFullError(len(prompt), self.n_ctx, "tokens", "let the oldest turns leave")

        if self.ctx.get_kv_self().seq_pos_max(self.seq_id) != len(self.tokens) - 1:
            self._truncate(0)  # somebody else changed the sequence
        # The last token is always computed, for its logits are needed.
        self._truncate(min(n_common(self.tokens, prompt), len(prompt) - 1))
        self.pending, self.spans = prompt[len(self.tokens) :], spans
        self.out_keys.discard(spans[-1].key)
        left = self._leave(leaving) if leaving else None
        self.ctx.perf_add_reused(len(self.tokens))
        return left

    def encode(self, source: Sequence[int]) -> bool:
        """Give an encoder-decoder a source to answer; False when the context was told to abort: nothing changed then.

        Raises: BatchError, ContextFullError: no tokens, or too many; nothing changed.
        """
        if self.ctx.encode(Batch.from_tokens(source, 0, self.seq_id, "none")) is DecodeStatus.ABORTED:
            return False
        self.tokens, self.pending, self.spans = [], [], []
        return True

    def forecast(self, turns: Sequence[Turn], n_predict: int) -> Forecast:
        """What `begin` with the same arguments would find; changes nothing."""
        kept = self.kept(turns)
        spans = [Span(turn.key, len(turn.tokens), turn.pinned) for turn in kept]
        n_prompt, n_ready = sum(span.n_tokens for span in spans), self.n_ready(turns)
        try:
            leaving = self._choose_leaving(spans, n_predict)
        except ContextFullError:
            return Forecast(n_prompt, n_ready, self.n_ctx - n_prompt - 1, 0)
        n_leaving = sum(span.n_tokens for span in spans if span.key in leaving)
        return Forecast(n_prompt, n_ready, self.n_ctx - n_prompt + n_leaving, len(leaving))

    def n_ready(self, turns: Sequence[Turn]) -> int:
        """How many tokens of a prompt the cache has at its beginning; none of a source, which is always encoded."""
        if self.ctx.get_model().arch.has_encoder:
            return 0
        return n_common(self.tokens, [token for turn in self.kept(turns) for token in turn.tokens])

    def move_chunks(self, turns: Sequence[Turn], n_chunk: int) -> None:
        """Move what a prompt goes on with behind an edit to where it belongs, so that it is not computed again.

        Its cells saw other tokens before them than the prompt has, so that the reply is near enough, but not the same.

        Args:
            turns: of the prompt; `begin` with the same ones follows.
            n_chunk: shorter chunks are not worth it.
        """
        prompt = [token for turn in self.kept(turns) for token in turn.tokens]
        end = begin = n_common(self.tokens, prompt)
        while begin + n_chunk <= len(self.tokens) and end + n_chunk <= len(prompt):
            if self.tokens[begin : begin + n_chunk] != prompt[end : end + n_chunk]:
                begin += 1
            elif self._cut_out(end, begin):
                end = begin = end + n_common(self.tokens[end:], prompt[end:])
            else:
                return

    def prefill(self) -> Iterator[PrefillProgress]:
        """Compute what the cache lacks of the prompt, part by part; stops early when the context is told to abort.

        What was computed until then stays, so that the next attempt goes on there. The last token is decoded by itself,
        as it is when all others are ready: a reply made again begins with the same bits.
        """
        n_reused, n_total = len(self.tokens), len(self.pending)
        yield PrefillProgress(0, n_total, n_reused)
        while self.pending:
            if not self.compute():
                return
            yield PrefillProgress(n_total - len(self.pending), n_total, n_reused)

    def compute(self) -> bool:
        """Compute one part of what is pending; False when the context was told to abort: it is still pending then."""
        batch = self.next_batch(self.ctx.n_ubatch())
        if self.ctx.decode(batch) is DecodeStatus.ABORTED:
            return False
        self.mark_decoded(batch.n_tokens)
        return True

    def next_batch(self, n_tokens: int) -> Batch:
        """The next part of what is pending, for whoever decodes several sessions at once; `mark_decoded` follows.

        Args:
            n_tokens: at most so many.

        Returns: a batch that asks for logits where it is the last part.
        """
        chunk = self.pending[: min(n_tokens, max(len(self.pending) - 1, 1))]
        is_last = len(chunk) == len(self.pending)
        return Batch.from_tokens(chunk, len(self.tokens), self.seq_id, "last" if is_last else "none")

    def mark_decoded(self, n_tokens: int) -> None:
        """Book that the first n_tokens of what was pending are in the cache."""
        self.tokens += self.pending[:n_tokens]
        self._number(n_tokens)
        del self.pending[:n_tokens]

    def logits(self) -> F32Array:
        """Logits behind the newest token, f32[n_vocab]; valid until the next decode."""
        return self.ctx.get_logits_ith(-1)

    def sampler(self, params: SamplerParams) -> Sampler:
        """A sampler for a reply to the prompt, with the end of the prompt in its window.

        One without a seed of its own goes on where the last reply left the generator, so that a session that was saved
        and loaded makes the same text as one that was not.
        """
        sampler = Sampler(params, self.ctx.get_model().hparams.n_vocab)
        if params.seed is None and self.sampler_state:
            sampler.load(self.sampler_state)
        n = params.repeat_last_n
        sampler.set_window(self.tokens if n < 0 else self.tokens[max(0, len(self.tokens) - n) :])
        return sampler

    # -- a reply -----------------------------------------------------------------------------------------------------

    def push(self, token: int) -> None:
        """Take a token of the reply: it is pending now. There must be room, see `is_full`."""
        self.pending.append(token)
        self.spans[-1].n_tokens += 1

    def make_room(self) -> TurnsLeft | None:
        """Let the oldest turns leave in the middle of a reply. Where the memory cannot shift, tokens become pending.

        Returns: None where no turn may leave.
        """
        if self.overflow == "stop" or all(span.pinned for span in self.spans[:-1]):
            return None
        # One more than n_ctx, for that the context is full is why we are here.
        return self._leave(choose_leaving(self.spans, self.n_ctx + 1, 2, self.n_ctx // 4))

    # -- other sessions ----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything."""
        self._truncate(0)
        self.pending, self.spans, self.out_keys, self.sampler_state = [], [], set(), b""

    def copy_from(self, other: Session) -> None:
        """Have what another session of the context has, sharing its cells."""
        self.clear()
        self.ctx.get_kv_self().seq_cp(other.seq_id, self.seq_id, 0, -1)
        self.tokens, self.spans = list(other.tokens), cut_spans(other.spans, len(other.tokens))
        self.out_keys = set(other.out_keys)
        self._number(len(self.tokens))

    # -- in a file ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> SessionSnapshot:
        """The session as it is now, to be written in any thread while this one goes on. Takes under a millisecond."""
        spans = cut_spans(self.spans, len(self.tokens))
        beside = SavedTokens(
            np.array(self.tokens, dtype=np.int32), self.sampler_state, pack_books(spans, self.out_keys)
        )
        births = np.array(self._births, dtype=np.int64)
        return SessionSnapshot(self.ctx.state_info(), self.ctx.get_kv_self().clone(), self.seq_id, beside, births)

    def log_at(self, path: str | Path) -> SessionLog:
        """The file at a path: the one that was loaded or saved there, to add what is new, or one to be written anew."""
        if self._log is None or self._log.path != Path(path):
            self._log = SessionLog(path, self.kv_type_on_disk)
        return self._log

    def save(self, path: str | Path) -> int:
        """Write what is new to a file that holds a whole generation at every moment: its bytes. Raises: OSError."""
        with self.snapshot() as snapshot:
            return self.log_at(path).append(snapshot)

    def load(self, path: str | Path) -> None:
        """Go on where a session of the same model was saved.

        Raises:
            StateFileError kinds, ContextFullError: it cannot be used; the session is empty then, and works.
        """
        self.clear()
        self._log = None
        log = SessionLog(path, self.kv_type_on_disk)
        saved = log.load(self.ctx.state_info(), self.ctx.get_kv_self(), self.seq_id)
        self.tokens = saved.tokens.tolist()
        self._births, self._n_born = array("q", range(len(self.tokens))), len(self.tokens)
        try:
            if len(self.tokens) != self.ctx.get_kv_self().seq_pos_max(self.seq_id) + 1:
                raise StateFileError("the tokens do not fit the memory", path)
            if saved.sampler:
                Sampler(SamplerParams(), self.ctx.get_model().hparams.n_vocab).load(saved.sampler)
            self.spans, self.out_keys = unpack_books(saved.chat, len(self.tokens))
        except StateFileError:
            self._truncate(0)
            raise
        self.sampler_state = saved.sampler
        self._log = log

    def _choose_leaving(self, spans: Sequence[Span], n_predict: int) -> set[str]:
        n_room = self.n_ctx // 4 if n_predict < 0 else min(n_predict, self.n_ctx // 4)
        if self.overflow == "stop":
            n_room = 1  # the reply ends where the context does
        return choose_leaving(spans, self.n_ctx, n_room, self.n_ctx // 4)

    # -- the cache ---------------------------------------------------------------------------------------------------

    def _number(self, n_tokens: int) -> None:
        """Give the newest n_tokens numbers."""
        self._births.extend(range(self._n_born, self._n_born + n_tokens))
        self._n_born += n_tokens

    def kept(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns that have not left; the last one never has."""
        whole = split_bos(turns, self.ctx.get_model().tokenizer.bos_token_id)
        return [turn for turn in whole if turn.key not in self.out_keys or turn is whole[-1]]

    def _truncate(self, n_tokens: int) -> None:
        """Cut the cache down to its first n_tokens, or fewer where it cannot be cut there."""
        if n_tokens >= len(self.tokens) > 0:
            return
        kv = self.ctx.get_kv_self()
        n_tokens = kv.seq_pos_reentry(self.seq_id, max(n_tokens, 0))
        kv.seq_rm(self.seq_id, n_tokens, -1)
        del self.tokens[n_tokens:], self._births[n_tokens:]

    def _leave(self, keys: set[str]) -> TurnsLeft:
        """Take turns out of the cache and out of what is pending."""
        n_before = len(self.tokens)
        ranges = ranges_of(self.spans, keys)
        whole = self.tokens + self.pending
        for begin, end in reversed(ranges):
            del whole[begin:end]
        n_should = n_before - sum(min(end, n_before) - min(begin, n_before) for begin, end in ranges)
        for begin, end in reversed(ranges):
            if not self._cut_out(begin, min(end, n_before)):
                self._truncate(ranges[0][0])
                break
        self.pending = whole[len(self.tokens) :]
        left = [span for span in self.spans if span.key in keys]
        self.spans = [span for span in self.spans if span.key not in keys]
        self.out_keys |= keys
        return TurnsLeft(
            tuple(span.key for span in left), sum(span.n_tokens for span in left), n_should - len(self.tokens)
        )

    def _cut_out(self, begin: int, end: int) -> bool:
        """Take a range of tokens out of the cache and move up what is behind; False where the memory cannot."""
        if begin >= end:
            return True
        kv = self.ctx.get_kv_self()
        if end < len(self.tokens):
            if not kv.caps.shift or not kv.seq_rm(self.seq_id, begin, end):
                return False
            kv.seq_add(self.seq_id, end, -1, begin - end)
        elif not kv.seq_rm(self.seq_id, begin, -1):
            return False
        del self.tokens[begin:end], self._births[begin:end]
        return True


def n_common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common beginning of two lists of ids."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
