"""Character cards of versions 1 to 3, in PNG, JSON and charx files, as the beginning of a chat.

The file itself is kept as it came, so that nothing it has is lost when it goes out again.
Source: the specifications chara_card_v2 and chara_card_v3: PNG text chunks "chara" and "ccv3" in base64, charx a ZIP with card.json.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from app.exchange.errors import ExchangeError
from app.exchange.fields import Fields, fields, items, parse, text_of
from app.exchange.grow import Node, grow
from app.storage.records import ChatTree

CARD_SUFFIXES = (".png", ".json", ".charx")
MAX_CARD_BYTES = 1 << 26
PNG = b"\x89PNG\r\n\x1a\n"
_KEYWORDS = (b"ccv3", b"chara")
_MEMBER = "card.json"
_NAME = re.compile(r"[0-9a-f]{64}")
_MACRO = re.compile(r"\{\{(char|user|original)\}\}", re.IGNORECASE)
_PORTRAIT = (256, 384)  # px, of the plain picture that a card without one gets


def card_of(data: bytes) -> str:
    """Return the JSON text of a file that is a character card, "" for what is none.

    Raises: ExchangeError: for a damaged PNG or ZIP.
    """
    if data.startswith(PNG):
        texts = dict(_texts(data))
        found = next((texts[key] for key in _KEYWORDS if key in texts), b"")
        try:
            return base64.b64decode(found, validate=True).decode("utf-8", "replace")
        except (binascii.Error, ValueError) as error:
            raise ExchangeError("The character in the picture is damaged.") from error
    if data.startswith(b"PK\3\4"):
        return _member_of(data)
    text = data.decode("utf-8-sig", "replace") if data.lstrip()[:1] in (b"{", b"\xef") else ""
    head = text[:MAX_CARD_BYTES]
    return head if "first_mes" in head or "chara_card_v" in head else ""


def card_tree(text: str, name: str) -> ChatTree | None:
    """Return the chat that a character begins: a system prompt, and each of its greetings as a version; None for no card.

    Args:
        text: JSON of the card.
        name: under which its file is kept.
    """
    card = fields(parse(text))
    data = fields(card.get("data")) or card
    if not text_of(card.get("spec")).startswith("chara_card_v") and "first_mes" not in data:
        return None
    character = text_of(data.get("nickname")) or text_of(data.get("name"))
    greetings = [text_of(data.get("first_mes")), *(text_of(g) for g in items(data.get("alternate_greetings")))]
    nodes = [Node("system", "", "system", _filled(_system_prompt(data), character), is_pinned=True)]
    nodes += [Node(str(i), "system", "assistant", _filled(text, character)) for i, text in enumerate(greetings)]
    tree = grow(character, nodes, "0" if greetings[0].strip() else "system")
    if tree is None:
        raise ExchangeError("The character is empty.")
    return ChatTree(replace(tree.chat, frozen=json.dumps({"card": name})), tree.messages)


def name_of(data: bytes) -> str:
    """Return the name that a card's file is kept under."""
    return hashlib.sha256(data).hexdigest()


def kept_card(tree: ChatTree, folder: Path) -> bytes:
    """Return the file of the character that a chat was begun with.

    Raises: ExchangeError: where there is none.
    """
    name = text_of(fields(parse(tree.chat.frozen)).get("card"))
    if not _NAME.fullmatch(name):
        raise ExchangeError("This chat was not begun with a character.")
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise ExchangeError("The file of the character is gone.") from error


def converted(data: bytes, suffix: str) -> bytes:
    """Return a card's file as another kind; as it came where it is of that kind already."""
    text = card_of(data)
    if suffix == ".json":
        return data if not data.startswith((PNG, b"PK\3\4")) else text.encode()
    if suffix == ".charx":
        return data if data.startswith(b"PK\3\4") else _zipped(text)
    return data if data.startswith(PNG) else _picture(text)


def _system_prompt(data: Fields) -> str:
    """Return what describes the character, each part as it was written."""
    parts = [text_of(data.get(key)) for key in ("system_prompt", "description")]
    parts += [
        f"{label}: {text_of(data.get(key))}"
        for key, label in (
            ("personality", "Personality"),
            ("scenario", "Scenario"),
            ("mes_example", "Example dialogue"),
        )
        if text_of(data.get(key)).strip()
    ]
    parts.append(text_of(data.get("post_history_instructions")))
    return "\n\n".join(part for part in parts if part.strip())


def _filled(text: str, character: str) -> str:
    """Return a text with the names that its macros stand for."""
    names = {"char": character, "user": "User", "original": ""}
    text = _MACRO.sub(lambda found: names[found[1].lower()], text)
    return text.strip()


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (type, content) of the chunks of a PNG."""
    pos = len(PNG)
    while pos + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, pos)
        if pos + 12 + length > len(data):
            raise ExchangeError("The picture is damaged.")
        yield kind, data[pos + 8 : pos + 8 + length]
        pos += 12 + length


def _texts(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    for kind, content in _chunks(data):
        if kind == b"tEXt" and b"\0" in content:
            keyword, _, text = content.partition(b"\0")
            yield keyword.lower(), text


def _member_of(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if _MEMBER not in archive.namelist():
                return ""
            with archive.open(_MEMBER) as member:
                return member.read(MAX_CARD_BYTES).decode("utf-8-sig", "replace")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ExchangeError("It is a damaged archive.") from error


def _zipped(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MEMBER, text)
    return buffer.getvalue()


def _picture(text: str) -> bytes:
    """Return a plain grey PNG that carries a card, under both keywords where it is of version 3."""
    width, height = _PORTRAIT
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xc0" * width) * height)
    code = base64.b64encode(text.encode())
    is_v3 = text_of(fields(parse(text)).get("spec")) == "chara_card_v3"
    texts = [(b"tEXt", keyword + b"\0" + code) for keyword in (_KEYWORDS if is_v3 else (b"chara",))]
    chunks = [(b"IHDR", head), *texts, (b"IDAT", rows), (b"IEND", b"")]
    return PNG + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )
