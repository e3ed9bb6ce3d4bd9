"""`POST /v1/completions`: a text goes on. Source: platform.openai.com/docs/api-reference/completions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from engine.scheduler import TokenScored
from engine.server.choices import Choice, Shape, answer, job_requests, token_piece
from engine.server.fields import Fields, read_fields
from engine.server.params import MAX_CHOICES, MAX_TOP, read_params
from engine.server.prompts import turns_of_text
from engine.server.served import Served, served_of


async def completions(request: Request) -> Response:
    """Go on with one text or several."""
    served, fields = served_of(request), await read_fields(request)
    params = read_params(fields, served.n_vocab, served.config.n_cache_reuse)
    n_top = None if fields.get("logprobs") is None else fields.whole("logprobs", 0, 0, MAX_TOP)
    all_ids = await served.in_text_thread(lambda: read_texts(fields, "prompt", served))
    if len(all_ids) * params.n > MAX_CHOICES:
        fields.fail("prompt", f"at most {MAX_CHOICES} replies at once")
    head: dict[str, object] = {
        "id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": served.name
    }  # fmt: skip
    shift = served.config.context_shift
    prompts = [turns_of_text(ids, shift) if shift else ids for ids in all_ids]
    return await answer(request, served, job_requests(prompts, params, n_top), params, TextShape(served), head)


def read_texts(fields: Fields, name: str, served: Served) -> list[list[int]]:
    """Texts as ids: a text, several, ids, or several lists of ids. Raises: BadRequestError."""
    value = fields.get(name)
    if isinstance(value, list) and value and isinstance(value[0], int):
        return [fields.ids(name, value, served.n_vocab)]
    if isinstance(value, list) and value and isinstance(value[0], list):
        return [fields.ids(name, item, served.n_vocab) for item in value]
    texts = fields.texts(name)
    if not texts:
        fields.fail(name, "a text is needed")
    found = [served.model.tokenizer.encode(text, parse_special=True) for text in texts]
    if not all(found):
        fields.fail(name, "an empty text")
    return found


class TextShape(Shape):
    """Plain texts."""

    name = chunk_name = "text_completion"

    def __init__(self, served: Served) -> None:
        self._served = served

    def delta(self, text: str, scores: Sequence[TokenScored]) -> dict[str, object]:
        """More text."""
        return {"text": text, "logprobs": self._logprobs(scores)}

    def last(self) -> dict[str, object]:
        """Nothing more."""
        return {"text": "", "logprobs": None}

    def whole(self, choice: Choice) -> dict[str, object]:
        """The text."""
        return {"text": choice.text, "logprobs": self._logprobs(choice.scores)}

    def _logprobs(self, scores: Sequence[TokenScored]) -> dict[str, object] | None:
        if not scores:
            return None
        pieces = [token_piece(self._served, score.token) for score in scores]
        return {
            "tokens": pieces,
            "token_logprobs": [score.logprob for score in scores],
            "top_logprobs": [{token_piece(self._served, t): p for t, p in score.top} for score in scores],
            "text_offset": [sum(map(len, pieces[:i])) for i in range(len(pieces))],
        }
