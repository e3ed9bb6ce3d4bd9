"""A session with the real default model: reuse, overflow, abort in time, files, stop strings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ContextParams, Model, create_context, load_model
from engine.cancel import CancelFlag
from engine.generate import Event, Finished, GenerateParams, TextDelta, generate
from engine.prompt import Message, PromptBuilder
from engine.sampling import SamplerParams
from engine.session import Session, TurnsLeft
from tests.models import SMOLLM2, real_model

pytestmark = pytest.mark.real

GREEDY = SamplerParams(temperature=0.0)
SYSTEM = Message("s", "system", "You answer in one short sentence.", pinned=True)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with load_model(real_model(SMOLLM2)) as opened:
        yield opened


def make_session(model: Model, n_ctx: int) -> Session:
    return Session(create_context(model, ContextParams(n_ctx=n_ctx)))


def reply(session: Session, messages: list[Message], n_predict: int = 12, stop: tuple[str, ...] = ()) -> list[Event]:
    model = session.ctx.get_model()
    turns = PromptBuilder(model.chat_template, model.tokenizer).turns(messages, f"r{len(messages)}")
    return list(generate(session, turns, GenerateParams(GREEDY, n_predict, stop)))


def ended(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def answer(messages: list[Message], events: list[Event]) -> Message:
    return Message(f"r{len(messages)}", "assistant", text_of(events), ended(events).tokens)


def test_each_message_computes_only_itself(model: Model) -> None:
    session = make_session(model, 1024)
    messages = [SYSTEM]
    for i, question in enumerate(("What is the capital of France?", "And of Italy?", "And of Spain?")):
        messages.append(Message(f"q{i}", "user", question))
        events = reply(session, messages)
        cold = reply(make_session(model, 1024), messages)
        # One token and many go through different attention kernels: a half-precision cache may turn a near tie.
        assert text_of(events)[:20] == text_of(cold)[:20]
        if i:
            assert ended(events).stats.n_computed < 20
            assert ended(events).stats.n_reused > 20
        messages.append(answer(messages, events))


def test_a_full_context_goes_on_and_keeps_the_system_prompt(model: Model) -> None:
    session = make_session(model, 160)
    messages, left = [SYSTEM], 0
    for i in range(6):
        messages.append(Message(f"q{i}", "user", f"Tell me something about the number {i + 10}, please."))
        events = reply(session, messages, 24)
        assert ended(events).reason in ("stop", "length")
        left += sum(len(event.keys) for event in events if isinstance(event, TurnsLeft))
        assert SYSTEM.text in model.tokenizer.decode(session.tokens)
        assert ended(events).stats.n_computed < 80
        messages.append(answer(messages, events))
    assert left == len(session.out_keys) > 2


def test_a_stop_string_over_several_tokens(model: Model) -> None:
    session = make_session(model, 256)
    messages = [Message("q", "user", "What is the capital of France?")]
    whole = text_of(reply(session, messages, 12))
    stop = whole[len(whole) // 3 : 2 * len(whole) // 3]
    events = reply(session, messages, 12, (stop,))
    assert text_of(events) == whole[: whole.index(stop)]
    assert ended(events).stop == stop


def test_an_abort_acts_within_100_ms_in_prompt_and_reply(model: Model) -> None:
    session = make_session(model, 4096)
    ids = model.tokenizer.encode("one two three four five six seven " * 400)
    for wait_s in (0.3, 1.2):
        cancel = CancelFlag()
        asked: list[float] = []

        def ask(cancel: CancelFlag = cancel, asked: list[float] = asked) -> None:
            asked.append(time.perf_counter())
            cancel.set()

        timer = threading.Timer(wait_s, ask)
        timer.start()
        *_, event = generate(session, ids, GenerateParams(GREEDY, ignore_eog=True), cancel)
        over = time.perf_counter()
        timer.join()
        assert isinstance(event, Finished)
        assert event.reason == "cancelled"
        assert over - asked[0] < 0.2  # twice the goal
        assert session.ctx.get_kv_self().seq_pos_max(0) == len(session.tokens) - 1


def test_saved_closed_and_opened_again(model: Model, tmp_path: Path) -> None:
    session = make_session(model, 512)
    messages = [SYSTEM, Message("q", "user", "Name three colours.")]
    messages.append(answer(messages, reply(session, messages)))
    session.save(tmp_path / "chat.kv")
    messages.append(Message("q2", "user", "And one more?"))
    want = reply(session, messages)
    session.ctx.close()
    opened = make_session(model, 512)
    opened.load(tmp_path / "chat.kv")
    got = reply(opened, messages)
    assert text_of(got) == text_of(want)
    assert ended(got).stats.n_reused == ended(want).stats.n_reused > 20
    assert ended(got).stats.n_computed < 20
