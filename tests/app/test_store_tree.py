"""The tree of messages in the database: versions, branches, forks, the bin, search, damage."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bridge.messages import ReplyFinished, ReplyStats
from app.storage.bin import Bin
from app.storage.chats import ChatStore
from app.storage.database import FILE_NAME, Database
from app.storage.migrations import MIGRATIONS, SCHEMA
from app.storage.records import AddMessages, ChatRecord, ForkChat, MessageRecord
from app.storage.search import MessageIndex, cjk_words, query_of


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ChatStore]:
    database = Database.open(tmp_path)
    yield ChatStore(database)
    database.close()


def add(store: ChatStore, *messages: tuple[int, int | None, str], chat_id: int = 1) -> None:
    records = [
        MessageRecord(i, chat_id, parent, "user" if i % 2 else "assistant", text) for i, parent, text in messages
    ]
    store.add_messages(AddMessages(ChatRecord(chat_id, "Chat", 100.0, leaf_id=records[-1].id), tuple(records)))


def shown(store: ChatStore, chat_id: int = 1) -> list[tuple[int, tuple[int, ...]]]:
    content = store.content(chat_id)
    assert content is not None
    return [(m.id, m.siblings) for m in content.messages]


def test_versions_are_known_and_a_step_shows_the_newest_leaf_below(store: ChatStore) -> None:
    add(store, (1, None, "a"), (2, 1, "b"), (3, 2, "c"), (4, 3, "d"))
    add(store, (6, 1, "b2"), (7, 6, "e"))
    add(store, (8, 7, "f"))
    assert shown(store) == [(1, ()), (6, (2, 6)), (7, ()), (8, ())]
    store.show_branch(1, 2)
    assert shown(store) == [(1, ()), (2, (2, 6)), (3, ()), (4, ())]
    store.show_branch(1, 6)
    assert [i for i, _ in shown(store)] == [1, 6, 7, 8]


def test_a_deleted_branch_gives_way_to_its_sibling_and_comes_back(store: ChatStore) -> None:
    add(store, (1, None, "a"), (2, 1, "b"), (3, 2, "c"))
    add(store, (4, 1, "b2"), (5, 4, "e"))
    deleted = Bin(store._db)
    deleted.delete_message(1, 4, store.leaf_without(1, 4))
    assert shown(store) == [(1, ()), (2, ()), (3, ())]
    deleted.delete_message(1, 2, store.leaf_without(1, 2))
    assert shown(store) == [(1, ())]
    deleted.delete_message(1, 1, store.leaf_without(1, 1))
    assert shown(store) == []
    assert [deleted.undo() for _ in range(3)] == [1, 1, 1]
    assert shown(store) == [(1, ()), (4, (2, 4)), (5, ())]
    assert deleted.undo() is None


def test_a_long_deleted_branch_goes_for_good(store: ChatStore, tmp_path: Path) -> None:
    n = 3000
    add(store, *((i, i - 1 or None, "x") for i in range(1, n + 1)))
    deleted = Bin(store._db)
    deleted.delete_message(1, 2, 1)
    deleted.empty(time.time() + 1, tmp_path)
    connection = store._db.connection
    assert [row[0] for row in connection.execute("SELECT id FROM message")] == [1]
    deleted.delete_chat(1)
    deleted.empty(time.time() + 1, tmp_path)
    assert connection.execute("SELECT count(*) FROM message").fetchone()[0] == 0
    assert deleted.n_undo() == 0


def test_a_fork_copies_the_branch_with_its_ids_and_marks(store: ChatStore) -> None:
    add(store, (1, None, "a"), (2, 1, ""), (3, 2, "c"), (4, 3, ""))
    for i, ids in ((2, b"\x07\0\0\0"), (4, b"\x09\0\0\0")):
        store.append_chunks([(i, f"reply {i}")])
        store.finish_reply(ReplyFinished(1, 1, i, "stop", ReplyStats(), None, ids, "fp", frozenset({1}), 20, 512))
    store.fork(ForkChat(ChatRecord(9, "Fork", 200.0), 3, 100))
    content = store.content(9)
    assert content is not None
    assert [(m.id, m.parent_id, m.text, m.token_ids) for m in content.messages] == [
        *((100, None, "a", b""), (101, 100, "reply 2", b"\x07\0\0\0"), (102, 101, "c", b"")),
    ]
    assert content.out_ids == {100}
    assert [i for i, _ in shown(store)] == [1, 2, 3, 4]


def test_search_finds_words_and_pairs_of_characters(store: ChatStore) -> None:
    add(store, (1, None, "Der Rhône fließt"), (2, 1, "你好世界。今天天气"))
    add(store, (11, None, "Rhone and Danube"), chat_id=2)
    index = MessageIndex(store._db)
    for text, chats in {
        "rhône": {1, 2},
        "rho dan": {2},
        "好世": {1},
        "你好世界": {1},
        "界": {1},
        "天天": {1},
        "好天": set(),
        'rhône "OR': set(),
        "": set(),
        "* ( NEAR": set(),
    }.items():
        assert index.chats_with(text) == chats, text
    add(store, (13, 11, "Volga"), chat_id=2)
    assert index.chats_with("volga") == {2}
    Bin(store._db).delete_chat(2)
    assert index.chats_with("danube") == set()


def test_a_broken_index_is_made_anew(store: ChatStore) -> None:
    add(store, (1, None, "Danube"))
    index = MessageIndex(store._db)
    assert index.chats_with("danube") == {1}
    store._db.connection.execute("DROP TABLE message_fts_data")
    assert index.chats_with("danube") == {1}


def test_pairs() -> None:
    assert cjk_words("ab 你好世 c 界") == "你好 好世 世 界"
    assert query_of("ab 你好") == 'text : "ab" * AND cjk : "你好"'


def test_rows_of_a_damaged_file_join_the_backup(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    store = ChatStore(database)
    add(store, (1, None, "in the backup"))
    database.backup_if_due(time.time())
    for chat_id in range(2, 60):
        add(store, (chat_id * 10, None, f"later {chat_id} " + "x" * 3000), chat_id=chat_id)
    database.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    for at in range(len(content) // 2 // 4096 * 4096, len(content) // 2 // 4096 * 4096 + 3 * 4096):
        content[at] ^= 0xA5
    path.write_bytes(content)
    database = Database.open(tmp_path)
    assert "was damaged" in database.notice and "messages could be read" in database.notice
    store = ChatStore(database)
    texts = {m.text for chat in store.chats() for m in (store.content(chat.id) or pytest.fail()).messages}
    assert "in the backup" in texts
    assert len(texts) >= 50
    assert len(store.chats()) >= 58
    assert database.connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert not list(tmp_path.glob("salvage*"))
    database.close()


def test_the_first_schema_is_brought_up_to_date(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as old:
        old.execute("CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        for statement in MIGRATIONS[0]:
            old.execute(statement)
        old.execute("INSERT INTO meta VALUES('schema', '1')")
        old.execute("INSERT INTO chat(id, title, used_at, leaf_id) VALUES(1, 'Old', 5, 2)")
        old.execute("INSERT INTO chat(id, title, used_at, leaf_id, deleted_at) VALUES(3, 'Binned', 5, NULL, 9e9)")
        old.execute(
            "INSERT INTO message(id, chat_id, role, text, state, created_at) VALUES(2, 1, 'user', 'hi', 'done', 5)"
        )
    old.close()
    database = Database.open(tmp_path)
    store = ChatStore(database)
    assert database.connection.execute("SELECT value FROM meta WHERE key='schema'").fetchone()[0] == str(SCHEMA)
    assert [(c.title, c.overflow) for c in store.chats()] == [("Old", "shift")]
    assert MessageIndex(database).chats_with("hi") == {1}
    assert Bin(database).undo() == 3
    assert len(list((tmp_path / "backups").glob("*.db"))) == 1
    database.close()


def test_a_file_of_a_later_program_keeps_every_byte(tmp_path: Path) -> None:
    database = Database.open(tmp_path)
    add(ChatStore(database), (1, None, "hi"))
    with database.connection as connection:
        connection.execute("UPDATE meta SET value='99' WHERE key='schema'")
    database.close()
    before = (tmp_path / FILE_NAME).read_bytes()
    database = Database.open(tmp_path)
    assert database.is_readonly
    assert shown(ChatStore(database)) == [(1, ())]
    assert MessageIndex(database).chats_with("hi") == frozenset()
    database.close()
    assert (tmp_path / FILE_NAME).read_bytes() == before
