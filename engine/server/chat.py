"""`POST /v1/chat/completions`: a conversation goes on. Source: platform.openai.com/docs/api-reference/chat."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from engine.scheduler import TokenScored
from engine.server.choices import Choice, Shape, answer, job_requests, token_piece
from engine.server.fields import Fields, read_fields
from engine.server.params import MAX_TOP, read_params
from engine.server.prompts import read_messages, turns_of_chat
from engine.server.served import Served, served_of


async def chat_completions(request: Request) -> Response:
    """Reply to the last message."""
    served, fields = served_of(request), await read_fields(request)
    params = read_params(fields, served.n_vocab, served.config.n_cache_reuse)
    fields.refuse("tools", "functions")
    n_top = _read_n_top(fields)
    messages = read_messages(fields, served.config.context_shift)
    turns = await served.in_text_thread(lambda: turns_of_chat(served.prompts, messages))
    head: dict[str, object] = {
        "id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name
    }  # fmt: skip
    return await answer(request, served, job_requests([turns], params, n_top), params, ChatShape(served), head)


def _read_n_top(fields: Fields) -> int | None:
    n_top = fields.whole("top_logprobs", 0, 0, MAX_TOP)
    return n_top if fields.flag("logprobs", False) else None


class ChatShape(Shape):
    """Messages."""

    name, chunk_name = "chat.completion", "chat.completion.chunk"

    def __init__(self, served: Served) -> None:
        self._served = served

    def first(self) -> dict[str, object]:
        """Who speaks."""
        return {"delta": {"role": "assistant", "content": ""}}

    def delta(self, text: str, scores: Sequence[TokenScored]) -> dict[str, object]:
        """More text."""
        return {"delta": {"content": text}, **self._logprobs(scores)}

    def last(self) -> dict[str, object]:
        """Nothing more."""
        return {"delta": {}}

    def whole(self, choice: Choice) -> dict[str, object]:
        """The message."""
        return {"message": {"role": "assistant", "content": choice.text}, **self._logprobs(choice.scores)}

    def _logprobs(self, scores: Sequence[TokenScored]) -> dict[str, object]:
        if not scores:
            return {}
        return {"logprobs": {"content": [
            {**self._logprob(s.token, s.logprob), "top_logprobs": [self._logprob(*pair) for pair in s.top]} for s in scores
        ]}}  # fmt: skip

    def _logprob(self, token: int, logprob: float) -> dict[str, object]:
        piece = self._served.model.tokenizer.token_to_piece(token)
        return {"token": token_piece(self._served, token), "logprob": logprob, "bytes": list(piece)}
