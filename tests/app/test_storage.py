from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import pytest

from app.bridge.messages import ReplyFinished, ReplyStats, SessionSaved, UserError
from app.storage import sessions
from app.storage.bin import Bin
from app.storage.chats import ChatStore
from app.storage.database import FILE_NAME, Database, Durability
from app.storage.migrations import SCHEMA
from app.storage.records import AddMessages, ChatRecord, MessageRecord
from app.storage.session_table import SessionTable


def open_store(folder: Path) -> tuple[Database, ChatStore]:
    database = Database.open(folder)
    return database, ChatStore(database)


def exchange(store: ChatStore, chat_id: int = 1, first: int = 10) -> AddMessages:
    request = AddMessages(
        ChatRecord(chat_id, "Rivers", 100.0 + chat_id, leaf_id=first + 1, n_ctx=512),
        (
            MessageRecord(first, chat_id, None, "user", "Name a river."),
            MessageRecord(first + 1, chat_id, first, "assistant", "", "queued"),
        ),
    )
    store.add_messages(request)
    return request


def test_a_reply_is_streamed_folded_and_read_back(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    store.start_reply(11)
    store.append_chunks([(11, "The "), (11, "Rhône")])
    store.append_chunks([(11, ".")])
    content = store.content(1)
    assert content is not None
    assert [(m.text, m.state) for m in content.messages] == [("Name a river.", "done"), ("The Rhône.", "streaming")]
    stats = ReplyStats(20, 5, 15, 4, 30.0, 400.0, 10.0)
    ids = b"\x01\x00\x00\x00"
    store.finish_reply(ReplyFinished(1, 1, 11, "stop", stats, None, ids, "fp", frozenset({10}), n_used=24, n_ctx=512))
    database.close()
    database, store = open_store(tmp_path)
    content = store.content(1)
    assert content is not None
    reply = content.messages[1]
    assert (reply.text, reply.state, reply.token_ids, reply.model_fp) == ("The Rhône.", "done", ids, "fp")
    assert (reply.n_generated, reply.tok_s) == (4, 10.0)
    assert (content.out_ids, content.n_used, content.n_ctx) == (frozenset({10}), 24, 512)
    assert database.connection.execute("SELECT count(*) FROM chunk").fetchone()[0] == 0
    database.close()


def test_what_was_being_written_is_interrupted_at_the_next_start(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    exchange(store, 2, 20)
    store.start_reply(11)
    store.append_chunks([(11, "half a sen")])
    database.close()
    database, store = open_store(tmp_path)
    store.recover()
    for chat_id, text in ((1, "half a sen"), (2, "")):
        content = store.content(chat_id)
        assert content is not None
        assert (content.messages[1].text, content.messages[1].state) == (text, "interrupted")
    database.close()


def test_the_branch_of_the_leaf_is_read(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    request = exchange(store)
    sibling = MessageRecord(12, 1, 10, "assistant", "Another.")
    store.add_messages(AddMessages(ChatRecord(1, "Rivers", 200.0, leaf_id=12), (sibling,)))
    content = store.content(1)
    assert content is not None
    assert [m.id for m in content.messages] == [10, 12]
    assert store.next_id() == 13
    assert request.messages[1].id == 11
    database.close()


def test_a_failed_reply_keeps_its_sentence(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    store.append_chunks([(11, "begun")])
    store.finish_reply(ReplyFinished(1, 1, 11, "failed", error=UserError("t", "It broke.", "Try again.")))
    content = store.content(1)
    assert content is not None
    assert (content.messages[1].state, content.messages[1].error) == ("failed", "It broke. Try again.")
    assert content.messages[1].text == "begun"
    database.close()


def test_the_bin_gives_back_the_last_first_and_survives_a_restart(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    for chat_id in (1, 2, 3):
        exchange(store, chat_id, 10 * chat_id)
    deleted = Bin(database)
    deleted.delete_chat(2)
    deleted.delete_chat(1)
    assert [chat.id for chat in store.chats()] == [3]
    assert store.content(1) is None
    database.close()
    database, store = open_store(tmp_path)
    deleted = Bin(database)
    assert deleted.n_undo() == 2
    assert [deleted.undo(), deleted.undo(), deleted.undo()] == [1, 2, None]
    content = store.content(1)
    assert content is not None and len(content.messages) == 2
    database.close()


def test_the_bin_is_emptied_after_its_time_with_the_session_files(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    folder = tmp_path / "sessions"
    folder.mkdir()
    for chat_id in (1, 11):
        exchange(store, chat_id, 10 * chat_id)
        (folder / f"{chat_id}.abc.kv").write_bytes(b"x")
    deleted = Bin(database)
    deleted.delete_chat(1)
    deleted.empty(time.time() - 60, folder)
    assert deleted.undo() == 1
    deleted.delete_chat(1)
    deleted.empty(time.time() + 60, folder)
    assert deleted.undo() is None
    assert [path.name for path in folder.iterdir()] == ["11.abc.kv"]
    assert database.connection.execute("SELECT count(*) FROM message WHERE chat_id=1").fetchone()[0] == 0
    database.close()


def test_session_files_used_longest_ago_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        path = tmp_path / f"{i}.abc.kv"
        path.write_bytes(bytes(1000))
        os.utime(path, (1000.0 - i, 1000.0 - i))
    (tmp_path / ".9.abc.kv.x1.part").write_bytes(b"half")
    sessions.remove_halves(tmp_path)
    monkeypatch.setattr(sessions, "MAX_BYTES", 2500)
    assert sessions.prune(tmp_path) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.abc.kv", "1.abc.kv"]
    assert sessions.prune(tmp_path, 1500, pinned={"1.abc.kv"}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["1.abc.kv"]


def test_drafts_titles_and_marks(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    store.set_draft(None, "new one")
    store.set_draft(1, "half")
    store.rename(1, "Streams")
    store.mark_read(1, True)
    table = SessionTable(database)
    table.keep(SessionSaved(1, 11, "fp", "1.fp.kv", 24, 4096))
    table.keep(SessionSaved(99, 11, "fp", "99.fp.kv", 24, 4096))
    database.close()
    database, store = open_store(tmp_path)
    (chat,) = store.chats()
    assert (chat.draft, chat.title, chat.is_unread, store.draft()) == ("half", "Streams", True, "new one")
    database.close()


def test_a_failing_transaction_changes_nothing(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    circle = MessageRecord(12, 1, 13, "user", "my own grandfather")
    with pytest.raises(sqlite3.IntegrityError):
        store.add_messages(AddMessages(ChatRecord(1, "Changed", 300.0, leaf_id=12), (circle,)))
    (chat,) = store.chats()
    assert (chat.title, chat.leaf_id) == ("Rivers", 11)
    database.close()


@pytest.mark.parametrize("damage", ["noise", "truncated", "text"])
def test_a_damaged_file_is_kept_aside_and_the_backup_shown(tmp_path: Path, damage: str) -> None:
    database, store = open_store(tmp_path)
    for i in range(30):
        exchange(store, i + 1, 100 * (i + 1))
    database.backup_if_due(time.time())
    database.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    if damage == "noise":
        content[4096:] = bytes(b ^ 0x5A for b in content[4096:])
    elif damage == "truncated":
        del content[len(content) // 2 :]
    else:
        content = bytearray(b"this is no database" * 1000)
    path.write_bytes(content)
    database, store = open_store(tmp_path)
    assert "was damaged" in database.notice and "backup" in database.notice
    assert len(store.chats()) == 30
    assert len(list(tmp_path.glob("causerie.damaged-*.db"))) == 1
    database.close()
    database, _ = open_store(tmp_path)
    assert database.notice == ""
    database.close()


def test_a_damaged_file_without_a_backup_starts_empty(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"\x00" * 64_560)
    database, store = open_store(tmp_path)
    assert "no backup" in database.notice
    assert store.chats() == ()
    database.close()


def test_three_backups_are_kept(tmp_path: Path) -> None:
    database, _ = open_store(tmp_path)
    now = time.time()
    for day in range(5):
        database.backup_if_due(now + 2 * 86_400 * day)
    assert len(list((tmp_path / "backups").iterdir())) == 3
    database.backup_if_due(now)
    assert len(list((tmp_path / "backups").iterdir())) == 3
    database.close()


def test_a_file_of_a_later_program_is_read_and_not_changed(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    with database.transaction(Durability.FULL) as connection:
        connection.execute("UPDATE meta SET value=? WHERE key='schema'", (str(SCHEMA + 1),))
    database.close()
    database, store = open_store(tmp_path)
    assert database.is_readonly and "later version" in database.notice
    assert len(store.chats()) == 1
    with pytest.raises(sqlite3.OperationalError):
        store.rename(1, "no")
    database.close()


def test_a_torn_log_opens_clean(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    for i in range(40):
        store.append_chunks([(11, f"{i} " * 50)])
    wal = (tmp_path / f"{FILE_NAME}-wal").read_bytes()
    main = (tmp_path / FILE_NAME).read_bytes()
    database.close()
    for i, length in enumerate((0, len(wal) // 3, len(wal) - 1, len(wal) - 4100)):
        folder = tmp_path / f"torn{i}"
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(main)
        (folder / f"{FILE_NAME}-wal").write_bytes(wal[:length])
        database, store = open_store(folder)
        store.recover()
        assert database.notice == ""
        for chat in store.chats():
            content = store.content(chat.id)
            assert content is not None
        database.close()


def test_a_flush_writes_little_whatever_the_length_of_the_reply(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    exchange(store)
    store.append_chunks([(11, "x" * 200_000)])
    wal = tmp_path / f"{FILE_NAME}-wal"
    database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = wal.stat().st_size
    store.append_chunks([(11, "y" * 60)])
    assert wal.stat().st_size - before <= 16 * 1024 + 32
    database.close()


def test_a_chat_of_ten_thousand_messages_is_read_in_time(tmp_path: Path) -> None:
    database, store = open_store(tmp_path)
    messages = tuple(
        MessageRecord(i + 2, 1, i + 1 if i else None, "user" if i % 2 == 0 else "assistant", f"message {i}")
        for i in range(10_000)
    )
    store.add_messages(AddMessages(ChatRecord(1, "Long", 1.0, leaf_id=10_001), messages))
    began = time.perf_counter()
    content = store.content(1)
    elapsed = time.perf_counter() - began
    assert content is not None and len(content.messages) == 10_000
    assert [m.text for m in content.messages[:2]] == ["message 0", "message 1"]
    assert elapsed < 0.6
    database.close()
