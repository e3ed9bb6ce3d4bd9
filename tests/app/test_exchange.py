"""Files of chats: what each program writes is taken in with all branches, our own without loss, damage with a sentence."""

from __future__ import annotations

import io
import json
import random
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.messages import ReplyRecord
from app.exchange.errors import ExchangeError
from app.exchange.own import own_lines
from app.exchange.pages import html_page, markdown_page
from app.exchange.reading import read_bytes
from app.exchange.writing import write_file
from app.storage.database import Database
from app.storage.records import ChatRecord, ChatTree, Generation, MessageRecord, TreeMessage
from app.storage.trees import TreeTable, moved
from tests.app.chat_files import FILES, TREE, TREES, as_json
from tests.fuzz import mutated

N_MUTATIONS = 500


@pytest.fixture
def table(tmp_path: Path) -> Iterator[TreeTable]:
    database = Database.open(tmp_path)
    yield TreeTable(database)
    database.close()


def rows(tree: ChatTree) -> list[tuple[int, int | None, str, str]]:
    return [(m.record.id, m.record.parent_id, m.record.role, m.record.text) for m in tree.messages]


def our_tree() -> ChatTree:
    """A chat with all that the store can know of one."""
    chat = ChatRecord(1, "Title", 5.5, 5, '{"a": 1}', "m.gguf", 4096, "draft", False, True, "stop", '{"b": 2}')
    record = ReplyRecord("hash", "{}", "1.0", "avx2", "ctx")
    made = Generation(7, 3, 4, "stop", 1.5, 20.25)
    messages = (
        TreeMessage(MessageRecord(2, 1, None, "system", "Be brief.", is_pinned=True), 1.25),
        TreeMessage(MessageRecord(3, 1, 2, "user", "Grüße 😀\u2028x"), 2.0),
        TreeMessage(
            MessageRecord(4, 1, 3, "assistant", "A", "stopped", False, "why", b"\1\0\0\0", "fp", 1, record=record),
            *(3.0, made),
        ),
        TreeMessage(MessageRecord(5, 1, 3, "assistant", "", "failed", error="No memory."), 4.0),
    )
    return ChatTree(chat, messages)


@pytest.mark.parametrize("name", FILES)
def test_what_another_program_writes_is_taken_in(name: str) -> None:
    (tree,) = read_bytes(FILES[name])
    if name in TREES:
        assert rows(tree) == [
            (1, None, "user", "What now?"),
            (2, 1, "assistant", "First."),
            (3, 1, "assistant", "Second."),
            (4, 3, "user", "Thanks."),
        ]
    else:
        expected = [(1, None, "user", "What now?"), (2, 1, "assistant", "Second."), (3, 2, "user", "Thanks.")]
        assert rows(tree) == expected
    assert tree.chat.leaf_id == len(tree.messages)
    lined = ("jan", "sharegpt", "sharegpt_lines", "request")
    assert tree.chat.title == ("" if name in lined else "A tree")
    timed = ("chatgpt", "open_webui", "llama_ui", "llama_rows", "lm_studio", "gpt4all")
    if name in timed:
        assert tree.chat.used_at == 1_700_000_005


def test_ours_comes_back_without_loss(table: TreeTable) -> None:
    (tree,) = read_bytes("".join(own_lines((our_tree(),))).encode())
    assert moved(tree, 1) == our_tree()
    table.write((moved(tree, 1),))
    assert table.read(()) == (our_tree(),)
    assert table.read((7,)) == ()


def test_a_zip_of_chats_is_taken_in() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("settings.json", "{}")
        archive.writestr("conversations.json", FILES["chatgpt"])
        archive.writestr("chats/two.jsonl", FILES["silly_tavern"])
    assert [tree.chat.title for tree in read_bytes(buffer.getvalue())] == ["A tree", "A tree"]


def test_circles_and_missing_parents_become_branches() -> None:
    nodes = {
        "a": {"parent": "b", "message": {"author": {"role": "user"}, "content": {"parts": ["a"]}}},
        "b": {"parent": "a", "message": {"author": {"role": "user"}, "content": {"parts": ["b"]}}},
        "c": {"parent": "gone", "message": {"author": {"role": "user"}, "content": {"parts": ["c\0\ud800"]}}},
    }
    (tree,) = read_bytes(as_json({"mapping": nodes}))
    assert rows(tree) == [(1, None, "user", "c\ufffd?"), (2, None, "user", "a"), (3, 2, "user", "b")]


def test_long_chains_of_what_is_left_out_take_no_time() -> None:
    chain = {str(i): {"parent": str(i - 1)} for i in range(20_000)}
    message = {"author": {"role": "user"}, "content": {"parts": ["x"]}}
    ends = {f"end {i}": {"parent": "19999", "message": message} for i in range(20_000)}
    data = as_json({"mapping": {**chain, **ends}})
    began = time.thread_time()
    (tree,) = read_bytes(data)
    assert time.thread_time() - began < 2
    assert len(tree.messages) == 20_000
    assert all(m.record.parent_id is None for m in tree.messages)


@pytest.mark.parametrize(
    "data", [b"", b"x", b"[]", b"{}", b"[" * 100_000, b"PK\3\4junk", b"\xf5\xd5\x53\xcc", b"null", b"9" * 9_000]
)
def test_what_is_no_chat_gets_a_sentence(data: bytes) -> None:
    with pytest.raises(ExchangeError, match=r"\.$"):
        read_bytes(data)


@pytest.mark.parametrize("name", [*FILES, "ours"])
def test_damage_gets_a_sentence_or_chats_that_the_store_takes(name: str, table: TreeTable) -> None:
    rng = random.Random(name)
    data = FILES.get(name) or "".join(own_lines((our_tree(),))).encode()
    first_id = 1
    began = time.thread_time()
    for _ in range(N_MUTATIONS):
        try:
            trees = read_bytes(mutated(data, rng))
        except ExchangeError as error:
            assert str(error).endswith(".")
            continue
        for tree in trees[:2]:
            kept = moved(tree, first_id)
            ids = {message.record.id for message in kept.messages}
            assert kept.chat.leaf_id in ids
            assert all(m.record.parent_id is None or m.record.parent_id < m.record.id for m in kept.messages)
            first_id += len(kept.messages) + 1
            if first_id < 400:
                table.write((kept,))
                assert [m.record for m in table.read((kept.chat.id,))[0].messages] == [m.record for m in kept.messages]
    assert time.thread_time() - began < 5


def test_pages_show_the_branch_and_run_nothing() -> None:
    tree = json.loads(json.dumps(TREE))
    tree["mapping"]["d"]["message"]["content"]["parts"] = ["<script>x</script> ![p](http://a/b.png) [j](javascript:x)"]
    trees = tuple(read_bytes(as_json(tree)))
    page = html_page(trees)
    assert "First." not in page
    assert "<script" not in page and "<img" not in page and 'href="javascript' not in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page and '<a href="http://a/b.png">p</a>' in page
    text = markdown_page(tuple(read_bytes(FILES["chatgpt"])))
    assert text.startswith("# A tree\n\n*2023-11-1")
    assert text.endswith("## You\n\nWhat now?\n\n## Reply\n\nSecond.\n\n## You\n\nThanks.\n")


def test_files_are_there_whole_or_not_at_all(tmp_path: Path, qtbot: QtBot) -> None:
    for suffix, start in ((".md", b"# Title"), (".html", b"<!DOCTYPE"), (".pdf", b"%PDF"), (".jsonl", b'{"causerie"')):
        write_file(tmp_path / f"chat{suffix}", (our_tree(),))
        assert (tmp_path / f"chat{suffix}").read_bytes().startswith(start)
    with pytest.raises(ExchangeError, match="has to end with"):
        write_file(tmp_path / "chat.doc", (our_tree(),))
    with pytest.raises(ExchangeError, match="cannot be written"):
        write_file(tmp_path / "none" / "chat.md", (our_tree(),))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["chat.html", "chat.jsonl", "chat.md", "chat.pdf"]
