"""Character cards: what begins a chat, what goes out again, damage."""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QFileDialog
from pytestqt.qtbot import QtBot

from app.exchange.cards import PNG, card_of, converted
from app.exchange.errors import ExchangeError
from app.exchange.reading import read_bytes
from tests.app.program import Program
from tests.fuzz import mutated

V2 = {
    "spec": "chara_card_v2",
    "spec_version": "2.0",
    "of_nobody_knows": [1, {"x": None}],
    "data": {
        **{"name": "Ada", "description": "{{char}} counts.", "personality": "Calm", "scenario": "", "mes_example": ""},
        **{"first_mes": "Hello, {{user}}.", "alternate_greetings": ["Good day."], "system_prompt": "Be {{Char}}."},
        **{"post_history_instructions": "Stay.", "extensions": {"odd": {"deep": [True]}}, "later": 7},
    },
}
V3 = {**V2, "spec": "chara_card_v3", "spec_version": "3.0", "data": {**V2["data"], "nickname": "Bea"}}  # type: ignore[dict-item]


def png(**texts: object) -> bytes:
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))]
    chunks += [(b"tEXt", k.encode() + b"\0" + base64.b64encode(json.dumps(v).encode())) for k, v in texts.items()]
    chunks += [(b"IDAT", zlib.compress(b"\0\0")), (b"IEND", b"")]
    return PNG + b"".join(struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)


def charx(card: object) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("card.json", json.dumps(card))
        archive.writestr("assets/icon.png", b"picture")
    return buffer.getvalue()


CARDS = {"json": json.dumps(V2).encode(), "png": png(chara=V2), "charx": charx(V2)}


@pytest.mark.parametrize("kind", CARDS)
def test_a_card_begins_a_chat(kind: str) -> None:
    (tree,) = read_bytes(CARDS[kind])
    assert tree.chat.title == "Ada"
    assert [(m.record.parent_id, m.record.role, m.record.text) for m in tree.messages] == [
        (None, "system", "Be Ada.\n\nAda counts.\n\nPersonality: Calm\n\nStay."),
        (1, "assistant", "Hello, User."),
        (1, "assistant", "Good day."),
    ]
    assert tree.messages[0].record.is_pinned
    assert tree.chat.leaf_id == 2


def test_version_3_wins_where_a_picture_has_both() -> None:
    assert read_bytes(png(chara=V2, ccv3=V3))[0].chat.title == "Bea"


@pytest.mark.parametrize("kind", CARDS)
def test_every_kind_becomes_every_other_without_loss(kind: str, qtbot: QtBot) -> None:
    for suffix in (".json", ".png", ".charx"):
        out = converted(CARDS[kind], suffix)
        assert json.loads(card_of(out)) == V2
        assert (out == CARDS[kind]) == (suffix == f".{kind}")
        if suffix == ".png" and kind != "png":
            assert QImage.fromData(out).width() == 256


@pytest.mark.parametrize("kind", CARDS)
def test_damaged_cards_get_a_sentence(kind: str) -> None:
    rng = random.Random(kind)
    for _ in range(500):
        try:
            trees = read_bytes(mutated(CARDS[kind], rng))
        except ExchangeError as error:
            assert str(error).endswith(".")
        else:
            assert all(tree.messages for tree in trees)


def test_a_character_comes_in_and_goes_out_as_it_was(
    program: Program, qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "ada.png", tmp_path / "out.png"
    source.write_bytes(CARDS["png"])
    monkeypatch.setattr(QFileDialog, "getOpenFileNames", lambda *_: ([str(source)], ""))
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_: (str(target), ""))
    with qtbot.waitSignal(program.app.controller.chat_opened):
        program.app.window._actions.action("import_chats").trigger()
    source.unlink()
    program.app.controller.send("Hi")
    program.wait_idle()
    roles = [(message.role, message.text) for message in program.engine.requests[-1].messages]
    assert roles[1:] == [("assistant", "Hello, User."), ("user", "Hi")]
    program.restart()
    program.app.window._actions.action("export_character").trigger()
    qtbot.waitUntil(target.exists)
    assert target.read_bytes() == CARDS["png"]
    program.app.controller.new_chat()
    program.app.controller.send("Hi")
    program.wait_idle()
    program.app.window._actions.action("export_character").trigger()
    qtbot.waitUntil(lambda: program.app.window._notice.text == "out.png: This chat was not begun with a character.")
