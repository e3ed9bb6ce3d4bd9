"""What chat and text completions have in common: jobs made, texts gathered or streamed, tokens counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from engine.generate import Finished, FinishReason, GenerateStats, TextDelta
from engine.scheduler import JobFailed, JobRequest, TokenScored
from engine.server.answers import DONE, event, stream_error
from engine.server.params import ReplyParams
from engine.server.replies import Replies, or_gone
from engine.server.served import Served
from engine.turns import Turn

STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@dataclass(slots=True)
class Choice:
    """A reply while it is gathered."""

    index: int
    text: str = ""
    scores: list[TokenScored] = field(default_factory=list)
    finished: Finished | None = None


class Shape(ABC):
    """How one kind of completion is written; `engine.server.chat` and `engine.server.completions` have one each."""

    name: str
    """Of a whole answer."""
    chunk_name: str
    """Of a part of a stream."""

    def first(self) -> dict[str, object] | None:
        """What a choice's stream begins with, if anything."""
        return None

    @abstractmethod
    def delta(self, text: str, scores: Sequence[TokenScored]) -> dict[str, object]:
        """More text of a choice."""

    @abstractmethod
    def last(self) -> dict[str, object]:
        """The end of a choice's stream."""

    @abstractmethod
    def whole(self, choice: Choice) -> dict[str, object]:
        """A whole choice."""


def job_requests(
    prompts: Sequence[Sequence[Turn] | Sequence[int]], params: ReplyParams, n_top: int | None
) -> list[JobRequest]:
    """A job for each choice of each prompt."""
    return [
        JobRequest(prompt, params.of_choice(i), params.slot_id, params.is_prompt_cached, params.n_reuse, n_top)
        for prompt in prompts
        for i in range(params.n)
    ]


async def answer(
    request: Request,
    served: Served,
    jobs: Sequence[JobRequest],
    params: ReplyParams,
    shape: Shape,
    head: dict[str, object],
) -> Response:
    """Run jobs and write what they give. Raises: what `Replies` raises, and a job's error before any text."""
    replies = Replies(served, jobs)
    try:
        await replies.wait_for_first(request)
        if params.is_stream:
            return _Stream(replies, _stream(replies, params, shape, head, len(jobs)))
        return JSONResponse(await or_gone(request, _gather(replies, shape, head, len(jobs))))
    finally:
        if not params.is_stream or not replies.has_begun:
            replies.close()


async def _gather(replies: Replies, shape: Shape, head: dict[str, object], n: int) -> dict[str, object]:
    choices = [Choice(i) for i in range(n)]
    async for index, got in replies:
        match got:
            case TextDelta():
                choices[index].text += got.text
            case TokenScored():
                choices[index].scores.append(got)
            case Finished():
                choices[index].finished = got
            case JobFailed():
                raise got.error
            case _:
                pass
    all_stats = [choice.finished.stats for choice in choices if choice.finished is not None]
    return {
        **head,
        "object": shape.name,
        "choices": [{"index": c.index, **shape.whole(c), "finish_reason": finish_reason(c.finished)} for c in choices],
        "usage": usage_of(all_stats),
        "timings": timings_of(all_stats),
    }


async def _stream(
    replies: Replies, params: ReplyParams, shape: Shape, head: dict[str, object], n: int
) -> AsyncIterator[bytes]:
    def chunk(index: int, values: dict[str, object], reason: str | None = None) -> bytes:
        choice = {"index": index, **values, "finish_reason": reason}
        return event({**head, "object": shape.chunk_name, "choices": [choice]})

    first = shape.first()
    if first is not None:
        for index in range(n):
            yield chunk(index, first)
    all_stats: list[GenerateStats] = []
    scores: dict[int, list[TokenScored]] = {index: [] for index in range(n)}
    async for index, got in replies:
        match got:
            case TokenScored():
                scores[index].append(got)
            case TextDelta() if got.text or scores[index]:
                yield chunk(index, shape.delta(got.text, scores[index]))
                scores[index].clear()
            case Finished():
                all_stats.append(got.stats)
                yield chunk(index, shape.last(), finish_reason(got))
            case JobFailed():
                yield stream_error(got.error)
                return
            case _:
                pass
    if params.with_usage:
        usage = {"choices": [], "usage": usage_of(all_stats), "timings": timings_of(all_stats)}
        yield event({**head, "object": shape.chunk_name, **usage})
    yield DONE


class _Stream(StreamingResponse):
    """Server-sent events; however it ends, so do the jobs behind it."""

    def __init__(self, replies: Replies, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, media_type="text/event-stream", headers=STREAM_HEADERS)
        self._replies = replies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._replies.close()


_REASONS: dict[FinishReason, str] = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


def finish_reason(finished: Finished | None) -> str | None:
    """Why a reply ended, in OpenAI's words."""
    return None if finished is None else _REASONS[finished.reason]


def usage_of(all_stats: Sequence[GenerateStats]) -> dict[str, object]:
    """Tokens of all choices; a prompt of several choices counts for each."""
    n_prompt = sum(stats.n_prompt for stats in all_stats)
    n_generated = sum(stats.n_generated for stats in all_stats)
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_generated,
        "total_tokens": n_prompt + n_generated,
        "prompt_tokens_details": {"cached_tokens": sum(stats.n_reused for stats in all_stats)},
    }


def timings_of(all_stats: Sequence[GenerateStats]) -> dict[str, object]:
    """What the choices cost together, by llama.cpp's names."""
    return {
        "cache_n": sum(stats.n_reused for stats in all_stats),
        "prompt_n": sum(stats.n_computed for stats in all_stats),
        "prompt_ms": sum(stats.prefill_ms for stats in all_stats),
        "predicted_n": sum(stats.n_generated for stats in all_stats),
        "predicted_ms": sum(stats.gen_ms for stats in all_stats),
        "predicted_per_second": sum(stats.tok_s for stats in all_stats),
    }


def token_piece(served: Served, token: int) -> str:
    """A token's text, with marks where it is part of a character."""
    return served.model.tokenizer.token_to_piece(token).decode(errors="replace")
