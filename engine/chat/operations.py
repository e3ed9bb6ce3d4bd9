"""Operators and filters of the template sandbox that could make much from little: checked before they run.

Used by `sandbox`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime

from jinja2 import Environment, filters
from jinja2.exceptions import TemplateError

from engine.chat.meter import MAX_COUNT, MAX_INT_BITS, MAX_SIZE, TemplateLimitError, current_meter

_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*(\d{5}|\*)|\{[^{}]*(\d{5}|\{)")
_MAX_DATE_FORMAT = 200

STRING_METHODS = frozenset({
    "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "format", "index", "isalnum",
    "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join",
    "ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
    "zfill",
})  # fmt: skip
"""What templates may call on texts."""

COUNTED_FILTERS = frozenset({"batch", "center", "int", "round", "truncate"})
"""Filters with numbers that say how often or how wide."""

_KEPT_FILTERS = (
    "abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort", "e", "escape", "first",
    "float", "groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject",
    "rejectattr", "replace", "reverse", "round", "safe", "select", "selectattr", "sort", "string", "title", "trim",
    "truncate", "unique", "upper", "wordcount",
)  # fmt: skip


def check_product(left: object, right: object) -> None:
    """Check the factors of a product."""
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(times, int):
            if max(0, times) * current_meter.get().measure(value) > MAX_SIZE:
                raise TemplateLimitError(f"it repeats something to more than {MAX_SIZE:,} characters")
            return
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MAX_INT_BITS:
        raise TemplateLimitError("a number is too large")


def check_power(left: object, right: object) -> None:
    """Check base and exponent."""
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_INT_BITS:
        raise TemplateLimitError("a number is too large")


def check_format(text: object, arguments: object) -> None:
    """Check a format string and what it writes: nothing may be padded to a great width, or be written too often."""
    if not isinstance(text, str):
        return
    if _WIDE_FORMAT.search(text):
        raise TemplateLimitError("a format asks for a great or computed width")
    n_fields = text.count("%") + text.count("{")
    if n_fields * current_meter.get().measure(arguments) > MAX_SIZE:
        raise TemplateLimitError(f"a format makes more than {MAX_SIZE:,} characters")


def check_arguments(arguments: Iterable[object]) -> None:
    """Check that no number says to do something very often or very wide."""
    for argument in arguments:
        if isinstance(argument, int) and abs(argument) > MAX_COUNT:
            raise TemplateLimitError("a number is too large")


def check_string_call(
    text: str, method: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[object, ...]:
    """Check a call of a text's method; returns its arguments, with an iterator for `join` read out."""
    check_arguments([*args, *kwargs.values()])
    if method == "replace" and len(args) >= 2:
        check_replace(text, args[0], args[1])
    elif method in ("format", "format_map"):
        check_format(text, [args, kwargs])
    elif method == "expandtabs":
        check_replace(text, "\t", " " * max([8, *(width for width in args if isinstance(width, int))]))
    elif method == "join" and args and isinstance(args[0], Iterable):
        meter = current_meter.get()
        items = list(meter.items(args[0]))
        check_join(text, len(items))
        meter.checked(items)
        return (items, *args[1:])
    return args


def check_replace(text: str, old: object, new: object) -> None:
    """Check how long a text becomes."""
    if isinstance(old, str) and isinstance(new, str):
        count = text.count(old)
        if len(text) + count * (len(new) - len(old)) > MAX_SIZE:
            raise TemplateLimitError(f"a replacement makes more than {MAX_SIZE:,} characters")


def check_join(separator: str, n_items: int) -> None:
    """Check how long the separators become together."""
    if len(separator) * n_items > MAX_SIZE:
        raise TemplateLimitError(f"a join makes more than {MAX_SIZE:,} characters")


def join_texts(items: Iterable[object]) -> str:
    """Join what a template writes, or the parts of a `~`, counting before memory is taken."""
    meter = current_meter.get()
    parts: list[str] = []
    size = 0
    for item in items:
        if not isinstance(item, str):
            meter.checked(item)
            item = str(item)
        size += len(item)
        if size > MAX_SIZE:
            raise TemplateLimitError(f"it writes more than {MAX_SIZE:,} characters")
        parts.append(item)
    meter.spend(size)
    return "".join(parts)


def _string(value: object) -> str:
    return join_texts([value])


def _join(value: Iterable[object], d: str = "", attribute: str | int | None = None) -> str:
    items = list(current_meter.get().items(value))
    if attribute is not None:
        items = [_member(item, attribute) for item in items]
    check_join(str(d), len(items))
    texts = [item if isinstance(item, str) else join_texts([item]) for item in items]
    current_meter.get().checked(texts)
    return str(d).join(texts)


def _member(item: object, name: str | int) -> object:
    return item.get(name, "") if isinstance(item, dict) else getattr(item, str(name), "")


def _sum(iterable: Iterable[object], attribute: str | int | None = None, start: float = 0) -> float:
    total = start
    for item in current_meter.get().items(iterable):
        value = item if attribute is None else _member(item, attribute)
        if not isinstance(value, int | float):
            raise TypeError("sum takes numbers")
        total += value
    return total


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    check_arguments([width])
    step = len(width) if isinstance(width, str) else width
    if len(s) + (s.count("\n") + 1) * step > MAX_SIZE:
        raise TemplateLimitError(f"an indentation makes more than {MAX_SIZE:,} characters")
    return str(filters.do_indent(s, width, first, blank))


def _replace(s: object, old: str, new: str, count: int | None = None) -> str:
    text = join_texts([s])
    check_replace(text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _format(value: str, *args: object, **kwargs: object) -> str:
    check_format(value, [args, kwargs])
    return value % (kwargs or args)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Source: huggingface/transformers, utils/chat_template_utils.py: not Jinja's own, which escapes for HTML.
    if (isinstance(indent, int) and not 0 <= indent <= 16) or any(len(text) > 16 for text in separators or ()):
        raise TemplateLimitError("tojson writes too much between its items")
    current_meter.get().checked(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: str) -> None:
    """What templates call to refuse a conversation."""
    raise TemplateError(message)


def strftime_now(format: str) -> str:
    """The conversation's time by that format, else the present one in the local time zone."""
    if len(format) > _MAX_DATE_FORMAT or re.search(r"%[-_0^#]*\d", format):
        raise TemplateLimitError("a date format is too long")
    return (current_meter.get().now or datetime.now()).strftime(format)


def safe_filters(environment: Environment) -> dict[str, Callable[..., object]]:
    """The filters that templates get, by name."""
    all_filters: dict[str, Callable[..., object]] = environment.filters
    kept = {name: all_filters[name] for name in _KEPT_FILTERS}
    kept.update(string=_string, join=_join, sum=_sum, indent=_indent, replace=_replace, format=_format, tojson=_tojson)
    return kept
