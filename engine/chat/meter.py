"""How much a chat template may do: time, and the size of what it makes.

Used by `sandbox`, whose every loop, call, operator and filter reports here. A template comes with a model file, so it
may be hostile; it must not hang a thread or fill the memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from datetime import datetime

from jinja2.runtime import Undefined
from jinja2.utils import Namespace

MAX_SECONDS = 1.0
"""Processor time of one rendering."""
MAX_SIZE = 4_000_000
"""Characters that one value may hold, everything inside it counted."""
MAX_WORK = 512_000_000
"""Characters that all values of one rendering may hold together."""
MAX_INT_BITS = 16_384
MAX_COUNT = 100_000
"""The largest number that may say how often or how wide."""
_ITEM_SIZE = 8
"""What an item counts beside its characters: about its memory."""
_STEPS_PER_LOOK = 8

_TEXT = (str, bytes)
_SCALAR = (int, float, type(None), Undefined)
_CONTAINER = (dict, list, tuple, set, frozenset)


class TemplateLimitError(Exception):
    """A template that goes beyond a limit; its text says which."""


class TemplateNamespace(Namespace):
    """Jinja's `namespace()`, but it holds no other and lies in no list: so nothing that was measured can grow later."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __setitem__(self, name: str, value: object) -> None:
        if isinstance(value, Namespace):
            raise TemplateLimitError("a namespace inside a namespace")
        super().__setitem__(name, value)


def _held(namespace: TemplateNamespace) -> list[object]:
    # A namespace's attributes are the template's, so nothing of its own can be reached the usual way.
    held: dict[str, object] = object.__getattribute__(namespace, "_Namespace__attrs")
    return list(held.values())


class Meter:
    """The count of one rendering, and the time that it is told; None: the present."""

    def __init__(self, now: datetime | None = None) -> None:
        self.now = now
        self._deadline = time.thread_time() + MAX_SECONDS
        self._steps = 0
        self._work = 0

    def step(self) -> None:
        """Count a step. Raises: TemplateLimitError: the time is up."""
        self._steps += 1
        if self._steps % _STEPS_PER_LOOK == 0 and time.thread_time() > self._deadline:
            raise TemplateLimitError(f"it takes longer than {MAX_SECONDS:g} s")

    def spend(self, size: int) -> None:
        """Count a value of that size. Raises: TemplateLimitError: it, or all together, are too large."""
        self.step()
        self._work += size
        if size > MAX_SIZE or self._work > MAX_WORK:
            raise TemplateLimitError(f"it makes more than {MAX_SIZE if size > MAX_SIZE else MAX_WORK:,} characters")

    def measure(self, value: object) -> int:
        """Characters in a value, each as often as it would be written, and something for each item.

        Raises: TemplateLimitError: more than one value may hold.
        """
        size = 0
        waiting = [value]
        while waiting:
            item = waiting.pop()
            size += _ITEM_SIZE
            if isinstance(item, _TEXT):
                size += len(item)
            elif isinstance(item, dict):
                waiting += item.keys()
                waiting += item.values()
            elif isinstance(item, _CONTAINER):
                waiting += item
            elif isinstance(item, TemplateNamespace):
                if item is not value:
                    raise TemplateLimitError("a namespace inside a list")
                waiting += _held(item)
            if not isinstance(item, _SCALAR):
                self.step()
            if size + _ITEM_SIZE * len(waiting) > MAX_SIZE:
                raise TemplateLimitError(f"a value holds more than {MAX_SIZE:,} characters")
        return size

    def checked(self, value: object) -> object:
        """The value, counted; the items of an iterator are counted as they come."""
        if isinstance(value, str):
            self.spend(len(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise TemplateLimitError("a number is too large")
        elif isinstance(value, (*_CONTAINER, TemplateNamespace)):
            self.spend(self.measure(value))
        elif isinstance(value, Iterator):
            return self.items(value)
        return value

    def items(self, iterable: Iterable[object]) -> Iterator[object]:
        """The same items, each a counted step."""
        for item in iterable:
            self.step()
            if isinstance(item, _CONTAINER):
                self.measure(item)
            yield item


current_meter: ContextVar[Meter] = ContextVar("current_meter")
"""The meter of the rendering that runs."""
