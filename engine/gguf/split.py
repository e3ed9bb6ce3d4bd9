"""Models in several files: their names, and the checks that the parts belong together.

Used by `reader`. Source: llama.cpp's gguf-split, `<prefix>-00001-of-00003.gguf` and the keys `split.*`.
"""

from __future__ import annotations

import re
from pathlib import Path

from engine.errors import GGUFFormatError
from engine.gguf.header import Header

KEY_NO, KEY_COUNT, KEY_TENSORS = "split.no", "split.count", "split.tensors.count"
MAX_PARTS = 99_999
"""Five digits in a name."""

_NAME = re.compile(r"(?P<prefix>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def split_count(path: Path, header: Header) -> int:
    """How many files the model lies in; 1 where the header says nothing of parts."""
    count = _split_int(path, header, KEY_COUNT, 1)
    return max(count, 1)


def split_paths(path: Path, count: int) -> tuple[Path, ...]:
    """The paths of all parts, from the path of any one.

    Raises: GGUFFormatError: where the name is not one of a part, or says another number of parts, or one is missing.
    """
    match = _NAME.fullmatch(path.name)
    if match is None:
        reason = f"one of {count} parts, but its name does not end in -00001-of-{count:05}.gguf"
        raise GGUFFormatError(path, f"kv '{KEY_COUNT}'", -1, reason)
    if int(match["count"]) != count:
        reason = f"{count} parts, but the file's name says {int(match['count'])}"
        raise GGUFFormatError(path, f"kv '{KEY_COUNT}'", -1, reason)
    paths = tuple(path.with_name(f"{match['prefix']}-{i + 1:05}-of-{count:05}.gguf") for i in range(count))
    for part in paths:
        if not part.is_file():
            raise GGUFFormatError(path, "file", -1, f"part {part.name} is missing beside it")
    return paths


def check_parts(paths: tuple[Path, ...], headers: list[Header]) -> None:
    """Raise GGUFFormatError unless the parts are numbered as named, and hold as many tensors as announced."""
    for i, (path, header) in enumerate(zip(paths, headers, strict=True)):
        for key, expected in ((KEY_NO, i), (KEY_COUNT, len(paths))):
            got = _split_int(path, header, key, -1)
            if got != expected:
                raise GGUFFormatError(path, f"kv '{key}'", -1, f"is {got}, expected {expected}")
    seen: set[str] = set()
    for path, header in zip(paths, headers, strict=True):
        twice = seen.intersection(header.tensors)
        if twice:
            raise GGUFFormatError(path, f"tensor '{min(twice)}'", -1, "is in an earlier part too")
        seen.update(header.tensors)
    announced = _split_int(paths[0], headers[0], KEY_TENSORS, len(seen))
    if announced != len(seen):
        raise GGUFFormatError(
            paths[0], f"kv '{KEY_TENSORS}'", -1, f"{announced:,} tensors announced, {len(seen):,} in the parts"
        )


def _split_int(path: Path, header: Header, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 2**31 - 1:
        raise GGUFFormatError(path, f"kv '{key}'", -1, f"is {value!r:.40}, an integer expected")
    if key == KEY_COUNT and value > MAX_PARTS:
        raise GGUFFormatError(path, f"kv '{key}'", -1, f"{value:,} parts, at most {MAX_PARTS:,} are possible")
    return value
