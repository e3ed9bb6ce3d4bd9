"""Chats of GPT4All: what Qt's QDataStream of version 6.2 writes, big-endian.

Source: gpt4all-chat/src/chat.cpp, chatmodel.cpp and tool.cpp of GPT4All 3.x, format versions 8 to 12.
"""

from __future__ import annotations

import struct

from app.bridge.messages import Role
from app.exchange.errors import ExchangeError
from app.exchange.fields import seconds_of, text_of
from app.exchange.grow import line
from app.storage.records import ChatTree

MAGIC = b"\xf5\xd5\x53\xcc"
VERSIONS = range(8, 13)
NULL_LENGTH = 0xFFFFFFFF
_QSTRING = 10  # QMetaType::QString
_MAX_DEPTH = 16
_ROLES: dict[str, Role] = {"System: ": "system", "Prompt: ": "user", "Response: ": "assistant"}


def gpt4all(data: bytes) -> ChatTree | None:
    """Return the chat of a `.chat` file.

    Raises: ExchangeError: for a version that is not known, and for what is damaged.
    """
    stream = _Stream(data, 4)
    version = stream.i32()
    if version not in VERSIONS:
        raise ExchangeError(f"It was written by a version of GPT4All that is not known (format {version}).")
    created_at = stream.i64()
    stream.text()
    title = stream.text()
    stream.text()  # name of the person
    stream.text()  # model
    for _ in range(stream.count(32)):
        stream.text()
    if version < 11:
        _skip_engine(stream)
    turns: list[tuple[Role | None, str]] = [_item(stream, version) for _ in range(stream.count(32))]
    return line(title, turns, seconds_of(created_at))


def _skip_engine(stream: _Stream) -> None:
    if stream.u8():
        raise ExchangeError(
            "It holds the memory of a model, too. Open it in a newer GPT4All once, which leaves that out."
        )
    stream.i32()
    stream.i32()
    stream.text()
    stream.text()
    stream.i32()


def _item(stream: _Stream, version: int) -> tuple[Role | None, str]:
    if version < 12:
        stream.i32()
    name, value = stream.text(), stream.text()
    if version < 10:
        stream.text()
    stream.text()  # another answer that a person proposed
    stream.skip(4 if version < 11 or name != "Response: " else 5)
    for _ in range(stream.count()):
        for _ in range(7):
            stream.text()
        stream.skip(12)
    if version >= 10:
        for _ in range(stream.count()):
            stream.skip(stream.length())
            stream.skip(stream.length())
    parts = [_part(stream, 0) for _ in range(stream.count())] if version >= 12 else []
    return _ROLES.get(name), "\n\n".join(part for part in (*parts, value) if part.strip())


def _part(stream: _Stream, depth: int) -> str:
    """Return the text of a part of a reply; that of tools is left out."""
    if depth > _MAX_DEPTH:
        raise ExchangeError("It is damaged: its parts are nested too deep.")
    name, value = stream.text(), stream.text()
    if name == "ToolCall: ":
        stream.text()
        for _ in range(stream.count()):
            stream.text()
            stream.i32()
            if stream.i32() != _QSTRING:
                raise ExchangeError("It has a tool call of a kind that is not known.")
            stream.skip(1)
            stream.text()
        stream.text()
        stream.i32()
        stream.text()
    parts = [_part(stream, depth + 1) for _ in range(stream.count())]
    if name not in ("Response: ", "Text: "):
        value = ""
    return "\n\n".join(part for part in (*parts, value) if part.strip())


class _Stream:
    """Reads numbers and texts one behind the other; what goes beyond the end is an ExchangeError."""

    def __init__(self, data: bytes, pos: int) -> None:
        self._data, self._pos = data, pos

    def skip(self, n_bytes: int) -> bytes:
        """Go on by so many bytes and return them."""
        end = self._pos + n_bytes
        if end > len(self._data):
            raise ExchangeError("It is damaged: it ends too early.")
        found, self._pos = self._data[self._pos : end], end
        return found

    def u8(self) -> int:
        return self.skip(1)[0]

    def i32(self) -> int:
        return int(struct.unpack(">i", self.skip(4))[0])

    def i64(self) -> int:
        return int(struct.unpack(">q", self.skip(8))[0])

    def count(self, n_bits: int = 64) -> int:
        """Return how many things follow; each takes a byte or more."""
        n = self.i32() if n_bits == 32 else self.i64()
        if not 0 <= n <= len(self._data) - self._pos:
            raise ExchangeError("It is damaged: a count is wrong.")
        return n

    def length(self) -> int:
        """Return the length of what follows, in bytes."""
        n = int(struct.unpack(">I", self.skip(4))[0])
        return 0 if n == NULL_LENGTH else n

    def text(self) -> str:
        return text_of(self.skip(self.length()).decode("utf-16-be", "replace"))
