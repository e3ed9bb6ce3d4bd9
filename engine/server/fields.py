"""The body of a request, read field by field with its type and range: nothing in it is trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn, TypeAlias

from starlette.requests import Request

from engine.server.answers import BadRequestError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_INT = 2**31 - 1


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


async def read_fields(request: Request) -> Fields:
    """The body, which has to be a JSON object.

    Raises: BadRequestError.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # What a form of a web page cannot send without asking first.
        raise BadRequestError("the body has to be application/json", status=415)
    body = await request.body()
    try:
        values: Json = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the body is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise BadRequestError("the body has to be a JSON object")
    return Fields(values)


class Fields:
    """Fields of an object; null counts as absent. Each method raises BadRequestError for another type or range."""

    def __init__(self, values: Mapping[str, Json], place: str = "") -> None:
        self._values, self._place = values, place

    def get(self, name: str) -> Json:
        """Whatever it is."""
        return self._values.get(name)

    def fail(self, name: str, reason: str) -> NoReturn:
        """Say what is wrong with a field."""
        raise BadRequestError(reason, self._place + name)

    def number(self, name: str, default: float) -> float:
        """A number; whoever uses it knows its range."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(name, "a number is needed")
        return value

    def whole(self, name: str, default: int, lo: int = 0, hi: int = MAX_INT) -> int:
        """A whole number from lo to hi."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not lo <= value <= hi:
            self.fail(name, f"a whole number from {lo} to {hi} is needed")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(name, "true or false is needed")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text that can be written in UTF-8; needed where there is no default."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        return self.as_text(name, value)

    def texts(self, name: str) -> list[str]:
        """A text or a list of some."""
        value = self.get(name)
        if value is None:
            return []
        return [self.as_text(name, item) for item in value] if isinstance(value, list) else [self.as_text(name, value)]

    def as_text(self, name: str, value: Json) -> str:
        """A value as text."""
        if not isinstance(value, str):
            self.fail(name, "a text is needed")
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(name, "half a surrogate pair is no text")
        return value

    def ids(self, name: str, value: Json, n_vocab: int) -> list[int]:
        """A value as token ids."""
        if not isinstance(value, list) or not value:
            self.fail(name, "a list of token ids is needed")
        ids = []
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < n_vocab:
                self.fail(name, f"a token id is a whole number from 0 to {n_vocab - 1}")
            ids.append(item)
        return ids

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; needed."""
        value = self.get(name)
        if not isinstance(value, list) or not value:
            self.fail(name, "a list of objects is needed")
        found = []
        for i, item in enumerate(value):
            if not isinstance(item, dict):
                self.fail(f"{name}[{i}]", "an object is needed")
            found.append(Fields(item, f"{self._place}{name}[{i}]."))
        return found

    def object(self, name: str) -> Fields:
        """An object; empty where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            self.fail(name, "an object is needed")
        return Fields(value or {}, f"{self._place}{name}.")

    def refuse(self, *names: str) -> None:
        """Say so where something is asked for that this server does not do."""
        for name in names:
            if self.get(name) not in (None, False, [], {}):
                self.fail(name, "not supported by this server")
