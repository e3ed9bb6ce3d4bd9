"""Reads of JSON that nobody vouches for: a value of the wrong kind counts as missing."""

from __future__ import annotations

import json
import math
from typing import Literal

from app.exchange.errors import ExchangeError

MAX_NUMBER = 2.0**53
MILLISECONDS_FROM = 1e11
"""A time above this many seconds, the year 5138, is one in milliseconds."""

Fields = dict[str, object]


def parse(text: str) -> object:
    """Return the value of a JSON text.

    Raises: ExchangeError: for what is no JSON, or is nested too deep.
    """
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ExchangeError("This is no JSON, or only a part of it.") from error
    return value


def fields(value: object, *path: str) -> Fields:
    """Return the object at the end of a path of keys, an empty one where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[object]:
    """Return a list, an empty one for what is none."""
    return value if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a text that any file can hold, an empty one for what is none."""
    if not isinstance(value, str):
        return ""
    return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def number_of(value: object, default: float = 0.0) -> float:
    """Return a finite number of reasonable size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    if isinstance(value, float) and not math.isfinite(value):
        return default
    return float(max(min(value, MAX_NUMBER), -MAX_NUMBER))


def seconds_of(value: object) -> float:
    """Return a time as seconds since the epoch, 0 where it is not known; larger numbers are milliseconds."""
    number = max(number_of(value), 0.0)
    return number / 1000 if number > MILLISECONDS_FROM else number


def key_of(value: object) -> str:
    """Return what names a node, an empty text for none."""
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) and value != -1 else ""


def content_of(value: object) -> str:
    """Return the text of a content: a text, or a list of parts of which those that are text count."""
    if isinstance(value, str):
        return text_of(value)
    parts = []
    for part in items(value):
        if isinstance(part, str):
            parts.append(text_of(part))
        else:
            inner = fields(part).get("text")
            parts.append(text_of(inner.get("value")) if isinstance(inner, dict) else text_of(inner))
    return "\n\n".join(part for part in parts if part)


def role_of(value: object) -> Literal["user", "assistant", "system"] | None:
    """Return a role by one of its names, None for what is no turn of a chat."""
    name = value.lower() if isinstance(value, str) else ""
    if name in ("user", "human", "prompter"):
        return "user"
    if name in ("assistant", "gpt", "bot", "model", "chatgpt", "bing", "bard"):
        return "assistant"
    return "system" if name == "system" else None
