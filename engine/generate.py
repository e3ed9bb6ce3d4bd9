"""THE loop: from turns of tokens to text, one token at a time. The first file to read.

What happens to a prompt, with the file that does it:

    messages -> turns of tokens       engine/chat, engine/tokenizer
    what the cache already has        engine/session.py
    decode what it has not            engine/context, which calls memory, graph, backend and the compiled core
    choose the next token             engine/sampling
    its text                          engine/tokenizer, held back while it may begin a stop string
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from engine.cancel import CancelFlag
from engine.errors import BatchError, SamplingParamError, UnsupportedCallError
from engine.sampling import Sampler, SamplerParams, StopStrings
from engine.session import PrefillProgress, Session, TurnsLeft
from engine.turns import Turn
from engine.types import F32Array

FinishReason = Literal["stop", "length", "cancelled", "context"]


@dataclass(frozen=True, slots=True)
class GenerateParams:
    """What a reply should be like.

    Attributes:
        sampler: how tokens are chosen.
        n_predict: most tokens of the reply; -1: until it ends by itself.
        stop: texts that end it; they are not part of it.
        ignore_eog: go on past end-of-generation tokens.
    """

    sampler: SamplerParams = field(default_factory=SamplerParams)
    n_predict: int = -1
    stop: tuple[str, ...] = ()
    ignore_eog: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.n_predict, bool) or not isinstance(self.n_predict, int) or self.n_predict < -1:
            raise SamplingParamError("n_predict", self.n_predict, "a whole number from -1 is needed")
        StopStrings(self.stop)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """One more token of the reply; its text may be empty while a character or a stop string is not complete.

    Attributes:
        text: to be shown behind what there is.
        token: its id, or None for text that was held back and is shown at the end.
    """

    text: str
    token: int | None


@dataclass(frozen=True, slots=True)
class GenerateStats:
    """What a reply cost.

    Attributes:
        n_prompt: tokens of the prompt; n_reused of them were ready, n_computed were computed.
        n_generated: tokens of the reply.
        prefill_ms: time until the first token could be chosen.
        gen_ms: time from there to the end.
        tok_s: tokens computed a second in that time; 0 for a reply of one token.
    """

    n_prompt: int
    n_reused: int
    n_computed: int
    n_generated: int
    prefill_ms: float
    gen_ms: float
    tok_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply is over; always the last event.

    Attributes:
        reason: "stop": the model or a stop string ended it; "length": n_predict; "cancelled"; "context": it is full
            and no turn may leave.
        tokens: ids of the reply, without the one that ended it. Given back in the next prompt they are found in the
            cache.
        stop: the stop string that ended it, or "".
    """

    reason: FinishReason
    tokens: tuple[int, ...]
    stop: str
    stats: GenerateStats


Event = PrefillProgress | TurnsLeft | TextDelta | Finished


def generate(
    session: Session, prompt: Sequence[Turn] | Sequence[int], params: GenerateParams, cancel: CancelFlag | None = None
) -> Iterator[Event]:
    """Make a reply, yielding events as they happen.

    Args:
        session: the chat's memory; it keeps what is computed here.
        prompt: the turns of the whole conversation, or ids of a text that goes on. An encoder-decoder makes the ids
            its source, and a new text.
        params: what the reply should be like.
        cancel: set from any thread it ends the reply within 100 ms, in the prompt too.

    Raises:
        ContextFullError: the turns that must stay do not fit; nothing was changed.
        SamplingParamError, BatchError: something in the request.
        UnsupportedCallError: a conversation with an encoder-decoder.
        KernelStatusError: logits that are not finite.
    """
    cancel = cancel or CancelFlag()
    reply = Reply(session, prompt, params, cancel)
    with cancel.bound(session.ctx.abort_flag):
        try:
            yield from reply.begin()
            yield from session.prefill()
            while not reply.is_over() and session.is_ready:
                yield from reply.step(session.logits())
                if len(session.pending) > 1:  # turns left that a memory without shifting has to compute anew
                    yield from session.prefill()
                elif session.pending:
                    session.compute()
            yield from reply.finish()
        finally:
            reply.close()


class Reply:
    """One reply while it is made: whoever drives it computes what is pending in its session, between its steps.

    `generate` drives one; `engine.scheduler` drives many in one batch.

    Args: as for `generate`.
    """

    def __init__(
        self, session: Session, prompt: Sequence[Turn] | Sequence[int], params: GenerateParams, cancel: CancelFlag
    ) -> None:
        turns = [turn for turn in prompt if isinstance(turn, Turn)]
        ids = tuple(token for token in prompt if not isinstance(token, Turn))
        if turns and ids:
            raise BatchError("a prompt is turns or ids, not both")
        model = session.ctx.get_model()
        self._source: tuple[int, ...] = ()
        if model.arch.has_encoder:
            if turns:
                raise UnsupportedCallError("a conversation", "an encoder-decoder, which takes one text at a time")
            if not ids:
                raise BatchError("the prompt is empty")
            self._source, ids = ids, (model.arch.decoder_start_token_id,)
        self._turns = turns or [Turn("prompt", ids, pinned=True)]
        self._session, self._params, self._cancel = session, params, cancel
        tokenizer = model.tokenizer
        self._eog = frozenset() if params.ignore_eog else tokenizer.eog_token_ids
        self._detokenizer = tokenizer.detokenizer(is_continuation=not turns and not self._source)
        self._stop = StopStrings(params.stop)
        self._sampler: Sampler | None = None
        self._tokens: list[int] = []
        self._reason: FinishReason | None = None
        self._n_prompt = self._n_reused = self._n_computed = self._n_steps = 0
        self._began = self._ready = time.perf_counter()

    def begin(self) -> Iterator[Event]:
        """Cut the cache down to what it has of the prompt; the rest is pending in the session. Encodes a source."""
        session = self._session
        if self._source and not session.encode(self._source):
            self._reason = "cancelled"
            return
        left = session.begin(self._turns, self._params.n_predict)
        if left is not None:
            yield left
        self._n_reused = session.n_used
        self._n_prompt = len(self._source) + session.n_used + len(session.pending)

    def is_over(self) -> bool:
        """Whether the text, its length or the context ended the reply, or somebody who asked for that."""
        if self._reason is None:
            if self._stop.found:
                self._reason = "stop"
            elif len(self._tokens) == self._params.n_predict:
                self._reason = "length"
            elif self._cancel.is_set():
                self._reason = "cancelled"
        return self._reason is not None

    def progress(self) -> PrefillProgress | None:
        """How much of the prompt is computed; None once the reply has begun."""
        if self._sampler is not None:
            return None
        n_used = self._session.n_used
        return PrefillProgress(n_used - self._n_reused, self._n_prompt - self._n_reused, self._n_reused)

    def step(self, logits: F32Array) -> Iterator[Event]:
        """Choose the next token and show its text; unless the reply is over then, it is pending in the session.

        Args:
            logits: f32[n_vocab], behind the newest token of the session.
        """
        session, sampler = self._session, self._sampler
        if sampler is None:
            sampler = self._sampler = session.sampler(self._params.sampler)
            self._prefilled()
        self._n_steps += 1
        token = sampler.sample(logits)
        if token in self._eog:
            self._reason = "stop"
            return
        sampler.accept(token)
        self._tokens.append(token)
        yield TextDelta(self._stop.push(self._detokenizer.push(token)), token)
        if self.is_over():
            return
        if session.is_full:
            left = session.make_room()
            if left is None:
                self._reason = "context"
                return
            yield left
        session.push(token)

    def finish(self) -> Iterator[Event]:
        """Show what was held back, and say how it ended."""
        if self._sampler is None:
            self._prefilled()
        gen_s = time.perf_counter() - self._ready
        text = self._stop.push(self._detokenizer.flush()) + self._stop.flush()
        if text:
            yield TextDelta(text, None)
        n_decoded = max(self._n_steps - 1, 0)
        stats = GenerateStats(
            n_prompt=self._n_prompt,
            n_reused=self._n_reused,
            n_computed=self._n_computed,
            n_generated=len(self._tokens),
            prefill_ms=1e3 * (self._ready - self._began),
            gen_ms=1e3 * gen_s,
            tok_s=n_decoded / gen_s if n_decoded and gen_s > 0 else 0.0,
        )
        yield Finished(self._reason or "cancelled", tuple(self._tokens), self._stop.found, stats)

    def close(self) -> None:
        """Leave the generator of random numbers to the session's next reply."""
        if self._sampler is not None:
            self._session.sampler_state = self._sampler.save()

    def _prefilled(self) -> None:
        self._n_computed = len(self._source) + self._session.n_used - self._n_reused
        self._ready = time.perf_counter()
