"""Takes in a file of chats, whichever program wrote it: what it is, its content tells."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from app.exchange.cards import card_of, card_tree, name_of
from app.exchange.errors import ExchangeError
from app.exchange.fields import Fields, fields, items, key_of, parse
from app.exchange.gpt4all import MAGIC, gpt4all
from app.exchange.lines_of_others import jan, role_and_content, sharegpt
from app.exchange.own import own
from app.exchange.trees_of_others import chatgpt, llama_ui, lm_studio, open_webui, silly_tavern
from app.storage.records import ChatTree

MAX_BYTES = 1 << 29
"""A file of chats, and what a ZIP of them unpacks to, has at most so many bytes."""

MAX_MEMBERS = 20_000
NOT_KNOWN = "It is no file of chats that Causerie knows."


def load(path: Path) -> bytes:
    """Return what stands in a file.

    Raises: ExchangeError: where it cannot be read or is too large.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ExchangeError(f"It cannot be read: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        raise ExchangeError("It is too large.")
    return data


def read_bytes(data: bytes) -> list[ChatTree]:
    """Return the chats of what stood in a file, each with all branches; ids begin at 1 in each, the chat's own is 0.

    Raises: ExchangeError: with a sentence, for all that cannot be read.
    """
    card = card_of(data)
    tree = card_tree(card, name_of(data)) if card else None
    if tree is not None:
        return [tree]
    found = list(_members(data)) if data.startswith(b"PK\3\4") else _read(data)
    trees = [tree for tree in found if tree is not None]
    if not trees:
        raise ExchangeError("It has no messages.")
    return trees


def _members(data: bytes) -> Iterator[ChatTree | None]:
    """Yield the chats of all files of a ZIP that hold some."""
    room = MAX_BYTES
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = [name for name in archive.namelist() if name.endswith((".json", ".jsonl"))]
            for name in names[:MAX_MEMBERS]:
                with archive.open(name) as member:
                    content = member.read(room + 1)
                room -= len(content)
                if room < 0:
                    raise ExchangeError("It is too large once it is unpacked.")
                try:
                    yield from _read(content)
                except ExchangeError:
                    continue  # settings and the like, which exports have beside the chats
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        if isinstance(error, ExchangeError):
            raise
        raise ExchangeError("It is a damaged archive.") from error


def _read(data: bytes) -> list[ChatTree | None]:
    if data.startswith(MAGIC):
        return [gpt4all(data)]
    text = data.decode("utf-8-sig", "replace")
    try:
        value = parse(text)
    except ExchangeError:
        return _read_lines(text)
    if isinstance(value, list):
        return _read_objects([fields(item) for item in value])
    if "mes" in fields(value) or "causerie" in fields(value):
        return _read_lines(text)
    return _read_objects([fields(value)])


def _read_objects(objects: list[Fields]) -> list[ChatTree | None]:
    """Return the chats of a JSON text: each object is one, or all of them are the messages of one."""
    first = objects[0] if objects else {}
    if "role" in first and "content" in first:
        return _read_rows(objects)
    found = [tree for value in objects for tree in _read_object(value)]
    if not found:
        raise ExchangeError(NOT_KNOWN)
    return found


def _read_object(chat: Fields) -> list[ChatTree | None]:
    if "mapping" in chat:
        return [chatgpt(chat)]
    if "history" in chat or "history" in fields(chat.get("chat")):
        return [open_webui(chat)]
    if "conv" in chat:
        return [llama_ui(chat)]
    if "conversations" in chat:
        return [sharegpt(chat)]
    messages = items(chat.get("messages"))
    if any("versions" in fields(message) for message in messages):
        return [lm_studio(chat)]
    return [role_and_content(chat)] if messages else []


def _read_lines(text: str) -> list[ChatTree | None]:
    """Return the chats of a JSON Lines file; lines that cannot be read are left out, the first one excepted."""
    lines: list[Fields] = []
    for line in text.split("\n"):
        if line.strip():
            try:
                lines.append(fields(parse(line)))
            except ExchangeError:
                if not lines:
                    raise
    if not lines:
        raise ExchangeError("It is empty.")
    first = lines[0]
    if "causerie" in first:
        return own(lines)
    if "chat_metadata" in first or "user_name" in first or "mes" in first:
        return [silly_tavern([{}, *lines] if "mes" in first else lines)]
    if any("convId" in line for line in lines[:2]) or "currNode" in first:
        return _read_llama_rows(lines)
    if "role" in first and "content" in first:
        return _read_rows(lines)
    return _read_objects(lines)


def _read_rows(rows: list[Fields]) -> list[ChatTree | None]:
    return jan(rows) if any("thread_id" in row for row in rows) else [role_and_content({"messages": list(rows)})]


def _read_llama_rows(lines: list[Fields]) -> list[ChatTree | None]:
    """Return the chats whose rows, their own and their messages', stand in one file."""
    chats = {key_of(line.get("id")): line for line in lines if "convId" not in line and "role" not in line}
    messages: dict[str, list[object]] = {}
    for line in lines:
        if "convId" in line:
            messages.setdefault(key_of(line["convId"]), []).append(line)
    return [llama_ui({"conv": chats.get(key, {}), "messages": rows}) for key, rows in messages.items()]
