from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.bridge.messages import JobFailed, UserError
from app.models import ChatController, Phase
from app.models.open_chat import prompt_of, title_of
from app.storage.records import MessageRecord, MessageState
from tests.app.fakes import make_bench


class Bench:
    """A controller with its engine, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.owner = QObject()
        self.folder = folder
        self.controller, self.engine, self.store = make_bench(folder, self.owner)
        self.notices: list[str] = []
        self.drafts: list[str] = []
        self.controller.notice.connect(self.notices.append)
        self.controller.draft_restored.connect(self.drafts.append)

    def texts(self) -> list[tuple[str, str, str]]:
        return [(item.role, item.text, item.state) for item in self.controller.conversation.items()]

    def answer(self, text: str) -> None:
        job_id = self.engine.last_job_id
        self.engine.start(job_id)
        self.engine.say(job_id, text)
        self.engine.finish(job_id)


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def phase(controller: ChatController) -> Phase:
    return controller.generation.phase


def test_a_message_is_answered(bench: Bench) -> None:
    controller, engine = bench.controller, bench.engine
    assert phase(controller) is Phase.IDLE
    assert controller.generation.n_ctx == 2048
    controller.send("What is a river?\nIn short.")
    job_id = engine.last_job_id
    assert controller.conversation.title == "What is a river?"
    assert bench.texts() == [("user", "What is a river?\nIn short.", "done"), ("assistant", "", "queued")]
    assert controller.chats.rows()[0].is_generating
    engine.start(job_id)
    engine.prefill(job_id, 10, 30, 100)
    assert phase(controller) is Phase.PREFILL
    state = controller.generation
    assert (state.n_reused, state.n_computed, state.n_to_compute, state.n_used) == (100, 10, 30, 110)
    engine.say(job_id, "Wat")
    engine.say(job_id, "er.")
    assert phase(controller) is Phase.GENERATING
    assert bench.texts()[1] == ("assistant", "Water.", "streaming")
    engine.finish(job_id)
    assert phase(controller) is Phase.IDLE
    assert bench.texts()[1] == ("assistant", "Water.", "done")
    assert (state.n_used, state.n_ctx, state.n_computed, state.n_reused) == (23, 512, 5, 15)
    assert not controller.chats.rows()[0].is_generating


def test_the_next_prompt_has_the_ids_that_were_made(bench: Bench) -> None:
    bench.controller.send("one")
    bench.answer("two")
    bench.controller.send("three")
    prompt = bench.engine.prompts[bench.engine.last_job_id]
    assert [(m.role, m.text, m.token_ids, m.model_fp) for m in prompt] == [
        *(("user", "one", b"", ""), ("assistant", "two", b"\x01\x00\x00\x00", "fp"), ("user", "three", b"", "")),
    ]


def test_a_reply_goes_on_while_another_chat_is_open(bench: Bench) -> None:
    controller, engine = bench.controller, bench.engine
    controller.send("first")
    first_chat, first = controller.conversation.chat_id, engine.last_job_id
    assert first_chat is not None
    engine.start(first)
    engine.say(first, "half ")
    controller.new_chat()
    assert phase(controller) is Phase.IDLE
    controller.send("second")
    second_chat, second = controller.conversation.chat_id, engine.last_job_id
    assert controller.generation.note.startswith("Waits")
    engine.say(first, "done")
    assert bench.texts()[1] == ("assistant", "", "queued")
    controller.open_chat(first_chat)
    assert bench.texts()[1] == ("assistant", "half done", "streaming")
    assert phase(controller) is Phase.GENERATING
    assert second_chat is not None
    controller.open_chat(second_chat)
    engine.finish(first)
    assert controller.chats.chat(first_chat) is not None
    row = controller.chats.chat(first_chat)
    assert row is not None and row.is_unread and not row.is_generating
    engine.start(second)
    engine.finish(second)
    controller.open_chat(first_chat)
    row = controller.chats.chat(first_chat)
    assert row is not None and not row.is_unread
    assert bench.texts()[1] == ("assistant", "half done", "done")


def test_stop_reaches_the_reply_of_the_open_chat(bench: Bench) -> None:
    controller, engine = bench.controller, bench.engine
    controller.send("go")
    job_id = engine.last_job_id
    engine.start(job_id)
    engine.say(job_id, "so far")
    controller.stop()
    assert engine.cancelled == [job_id]
    assert phase(controller) is Phase.STOPPING
    engine.finish(job_id, "cancelled")
    assert bench.texts()[1] == ("assistant", "so far", "stopped")
    assert phase(controller) is Phase.IDLE
    controller.stop()
    assert engine.cancelled == [job_id]


def test_what_cannot_be_sent_goes_back_to_the_composer(qtbot: QtBot, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.controller.send("  \n")
    assert bench.texts() == []
    bench.controller.send("go")
    bench.controller.send("again")
    assert bench.drafts[-1] == "again"
    assert "still being made" in bench.notices[-1]
    assert len(bench.texts()) == 2
    bench.engine.finish(bench.engine.last_job_id)
    bench.controller.on_engine_event(JobFailed(99, UserError("t", "The file is damaged.", "Choose another.")))
    bench.controller.new_chat()
    bench.engine.loads.clear()
    assert bench.notices[-1] == "The file is damaged. Choose another."


def test_a_message_can_be_sent_while_the_model_loads(bench: Bench) -> None:
    bench.controller.load_model("/models/Other.gguf")
    assert phase(bench.controller) is Phase.LOADING
    assert bench.controller.generation.model_name == "Other"
    bench.controller.send("early")
    assert bench.texts()[1] == ("assistant", "", "queued")
    assert phase(bench.controller) is Phase.LOADING
    bench.engine.loaded("Other")
    assert phase(bench.controller) is Phase.PREFILL


def test_the_folder_of_a_model_is_listed_from_then_on(bench: Bench) -> None:
    settings = bench.controller._settings
    assert settings.model_folders == ("/models",)
    bench.engine.loaded("Other")
    assert settings.model_folders == ("/models",)
    assert settings.last_model == "/models/Other.gguf"


def test_a_model_that_fails_gives_way_to_the_one_before(bench: Bench) -> None:
    bench.controller.load_model("/models/bad.gguf")
    bench.controller.on_engine_event(JobFailed(2, UserError("t", "The file is damaged.")))
    assert bench.engine.loads[-2:] == ["/models/bad.gguf", "/models/Fake 1B.gguf"]
    assert phase(bench.controller) is Phase.LOADING


def test_an_error_stays_with_its_message(bench: Bench) -> None:
    bench.controller.send("go")
    bench.engine.start(bench.engine.last_job_id)
    bench.engine.finish(bench.engine.last_job_id, "failed", UserError("t", "It broke.", "Send again."))
    item = bench.controller.conversation.items()[1]
    assert (item.state, item.error) == ("failed", "It broke. Send again.")
    assert bench.controller.generation.error == "It broke."
    bench.controller.send("again")
    assert bench.controller.generation.error == ""
    prompt = bench.engine.prompts[bench.engine.last_job_id]
    assert [(m.role, m.text) for m in prompt] == [("user", "again")]


def test_regenerate_makes_a_sibling(bench: Bench) -> None:
    bench.controller.send("go")
    bench.answer("first")
    bench.controller.regenerate()
    assert bench.texts() == [("user", "go", "done"), ("assistant", "", "queued")]
    bench.answer("second")
    assert bench.texts()[1] == ("assistant", "second", "done")
    chat_id = bench.controller.conversation.chat_id
    assert chat_id is not None
    bench.controller.open_chat(chat_id)
    assert [text for _, text, _ in bench.texts()] == ["go", "second"]


def test_messages_that_left_the_context_are_marked_and_stay_marked(bench: Bench) -> None:
    bench.controller.send("one")
    bench.answer("two")
    user_id = bench.controller.conversation.items()[0].id
    bench.controller.send("three")
    job_id = bench.engine.last_job_id
    bench.engine.start(job_id)
    bench.engine.finish(job_id, out_ids=frozenset({user_id}))
    marks = [item.is_out for item in bench.controller.conversation.items()]
    assert marks == [True, False, False, False]
    chat_id = bench.controller.conversation.chat_id
    assert chat_id is not None
    bench.controller.new_chat()
    bench.controller.open_chat(chat_id)
    assert [item.is_out for item in bench.controller.conversation.items()] == marks
    assert bench.controller.generation.n_used == 23


def test_everything_is_back_after_a_restart(qtbot: QtBot, tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.controller.send("question")
    first.answer("answer")
    first.controller.rename_chat(first.controller.chats.rows()[0].chat_id, "  Named\nanew ")
    first.controller.set_draft("half a tho")
    first.controller.close()
    second = Bench(tmp_path)
    assert second.texts() == [("user", "question", "done"), ("assistant", "answer", "done")]
    assert second.controller.conversation.title == "Named anew"
    chat_id = second.controller.conversation.chat_id
    assert chat_id is not None
    second.controller.open_chat(chat_id)
    assert second.drafts[-1] == "half a tho"
    second.controller.send("more")
    assert len({item.id for item in second.controller.conversation.items()}) == 4
    second.controller.new_chat()
    second.controller.set_draft("new draft")
    second.controller.close()
    third = Bench(tmp_path)
    third.controller.new_chat()
    assert third.drafts[-1] == "new draft"


def test_drafts_belong_to_their_chats(bench: Bench) -> None:
    controller = bench.controller
    controller.send("one")
    bench.answer("reply")
    chat_id = controller.conversation.chat_id
    assert chat_id is not None
    controller.set_draft("for one")
    controller.new_chat()
    assert bench.drafts[-1] == ""
    controller.set_draft("for new")
    controller.open_chat(chat_id)
    assert bench.drafts[-1] == "for one"
    controller.new_chat()
    assert bench.drafts[-1] == "for new"
    controller.send("sent")
    controller.new_chat()
    assert bench.drafts[-1] == ""


def test_a_draft_is_kept_without_leaving_the_chat(qtbot: QtBot, bench: Bench) -> None:
    bench.store.requests.clear()
    for text in ("a", "ab", "abc"):
        bench.controller.set_draft(text)
    qtbot.waitUntil(lambda: bool(bench.store.requests))
    assert len(bench.store.requests) == 1


def test_deleting_stops_and_can_be_undone(bench: Bench) -> None:
    controller, engine = bench.controller, bench.engine
    controller.send("one")
    chat_id, job_id = controller.conversation.chat_id, engine.last_job_id
    assert chat_id is not None
    engine.start(job_id)
    engine.say(job_id, "text")
    controller.delete_chat(chat_id)
    assert engine.cancelled == [job_id] and engine.forgotten == [chat_id]
    assert controller.conversation.chat_id is None and controller.chats.rows() == ()
    engine.finish(job_id, "cancelled")
    assert controller.chats.rows() == ()
    controller.bin.undo()
    assert controller.conversation.chat_id == chat_id
    assert bench.texts()[1] == ("assistant", "text", "stopped")
    controller.bin.undo()
    assert len(controller.chats.rows()) == 1


def test_the_system_prompt_is_fixed_at_the_first_send(bench: Bench, tmp_path: Path) -> None:
    settings = bench.controller._settings
    settings.system_prompt = "Be brief."
    bench.controller.send("one")
    bench.answer("two")
    settings.system_prompt = "Be long."
    bench.controller.send("three")
    prompt = bench.engine.prompts[bench.engine.last_job_id]
    assert (prompt[0].role, prompt[0].text, prompt[0].is_pinned) == ("system", "Be brief.", True)
    assert len(prompt) == 4


def record(message_id: int, role: str, text: str, state: MessageState = "done") -> MessageRecord:
    assert role in ("user", "assistant")
    parent_id = message_id - 1 or None
    return MessageRecord(message_id, 1, parent_id, "user" if role == "user" else "assistant", text, state)


def test_replies_without_a_word_are_no_part_of_a_prompt() -> None:
    messages = [
        *(record(1, "user", "a"), record(2, "assistant", "", "stopped"), record(3, "user", "b")),
        *(record(4, "assistant", "c", "stopped"), record(5, "user", "d")),
    ]
    assert [(m.message_id, m.text) for m in prompt_of(messages)] == [(3, "a\n\nb"), (4, "c"), (5, "d")]


def test_what_failed_does_not_stand_in_the_way_of_what_follows() -> None:
    messages = [
        *(record(1, "user", "a"), record(2, "assistant", "b"), record(3, "user", "far too long")),
        *(record(4, "assistant", "", "failed"), record(5, "user", "short")),
    ]
    assert [m.text for m in prompt_of(messages)] == ["a", "b", "short"]
    # Asked again by itself it is what has to be answered.
    assert [m.text for m in prompt_of(messages[:3])] == ["a", "b", "far too long"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Short", "Short"),
        ("\n\n  Second line \nthird", "Second line"),
        ("word " * 30, "word word word word word word word word word word word word…"),
        ("x" * 100, "x" * 60 + "…"),
    ],
)
def test_titles(text: str, title: str) -> None:
    assert title_of(text) == title
