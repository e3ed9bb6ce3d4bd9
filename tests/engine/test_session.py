"""What a session reuses, who leaves when the context is full, and what an abort leaves behind."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cancel import CancelFlag
from engine.errors import ContextFullError, StateFileError
from engine.generate import Event, Finished, GenerateParams, generate
from engine.sampling import SamplerParams
from engine.session import Session, TurnsLeft
from engine.session_file import pack_books, unpack_books
from engine.turns import Span, Turn, choose_leaving, ranges_of
from tests.engine.fake_context import BOS, FakeContext, make_session

GREEDY = SamplerParams(temperature=0.0)


def say(key: str, text: str, pinned: bool = False) -> Turn:
    return Turn(key, tuple(text.encode()), pinned)


def run(session: Session, turns: list[Turn], n_predict: int = 4, stop_after: int = -1) -> tuple[Finished, list[Event]]:
    events: list[Event] = []
    cancel = CancelFlag()
    for event in generate(session, turns, GenerateParams(GREEDY, n_predict), cancel):
        events.append(event)
        if len(events) == stop_after:
            cancel.set()
    assert isinstance(events[-1], Finished)
    return events[-1], events


def left_keys(events: list[Event]) -> list[str]:
    return [key for event in events if isinstance(event, TurnsLeft) for key in event.keys]


def cold(turns: list[Turn], n_ctx: int, n_predict: int = 4) -> tuple[int, ...]:
    """The reply of a session that has never seen anything."""
    return run(make_session(FakeContext(n_ctx=n_ctx)), turns, n_predict)[0].tokens


def test_only_new_tokens_are_computed() -> None:
    ctx = FakeContext(n_ctx=500)
    session = make_session(ctx)
    turns = [say("s", "be brief", pinned=True), say("1", "hello")]
    first, _ = run(session, turns)
    assert (first.stats.n_reused, first.stats.n_computed) == (0, 13)
    turns += [Turn("2", first.tokens), say("3", "and more")]
    second, _ = run(session, turns)
    # The last token of a reply was chosen but never computed.
    assert (second.stats.n_reused, second.stats.n_computed) == (13 + 3, 1 + 8)
    assert ctx.n_reused == 13 + 3
    assert second.tokens == cold(turns, 500)
    assert ctx.memory.tokens(0) == session.tokens


def test_the_same_prompt_again_computes_one_token() -> None:
    session = make_session(FakeContext(n_ctx=500))
    turns = [say("1", "hello there")]
    first, _ = run(session, turns)
    again, _ = run(session, turns)
    assert again.stats.n_computed == 1
    assert again.tokens == first.tokens


def test_an_edit_computes_from_the_edit_on() -> None:
    session = make_session(FakeContext(n_ctx=500))
    run(session, [say("1", "hello there"), say("2", "old"), say("3", "tail")])
    turns = [say("1", "hello there"), say("4", "one"), say("5", "tail")]
    edited, _ = run(session, turns)
    assert edited.stats.n_reused == 11 + 1  # "o" of "one" is common, too
    assert edited.tokens == cold(turns, 500)


def test_sessions_in_one_context_do_not_mix() -> None:
    ctx = FakeContext(n_ctx=500)
    a, b = make_session(ctx, 0), make_session(ctx, 1)
    for session, text in ((a, "first"), (b, "second"), (a, "first")):
        run(session, [say("1", text)])
    assert ctx.memory.tokens(0) == a.tokens
    assert ctx.memory.tokens(1) == b.tokens


def test_a_cancelled_prompt_keeps_its_finished_batches() -> None:
    ctx = FakeContext(n_ctx=500, n_ubatch=8)
    session = make_session(ctx)
    turns = [say("1", "x" * 40)]
    done, _ = run(session, turns, stop_after=3)
    assert done.reason == "cancelled"
    assert done.tokens == ()
    assert len(session.tokens) == 16
    again, _ = run(session, turns)
    assert (again.stats.n_reused, again.stats.n_computed) == (16, 24)
    assert again.tokens == cold(turns, 500)


CHAT = [
    say("s", "system.", pinned=True), *(say(str(i), f"<turn number {i}>") for i in range(6)),
]  # fmt: skip


@pytest.mark.parametrize("can_shift", [True, False])
@pytest.mark.parametrize("can_cut", [True, False])
def test_overflow_drops_whole_oldest_turns(can_shift: bool, can_cut: bool) -> None:
    ctx = FakeContext(n_ctx=100, can_shift=can_shift, can_cut=can_cut)
    session = make_session(ctx)
    run(session, CHAT[:5])  # 7 + 4 * 15 tokens and 4 of a reply
    decoded = ctx.n_decoded
    done, events = run(session, CHAT[:7])  # 97 tokens: 4 more have no room, 25 beyond them are made
    assert left_keys(events) == ["0", "1"]
    assert session.out_keys == {"0", "1"}
    stays = [CHAT[0], *CHAT[3:7]]
    assert done.tokens == cold(stays, 100)
    assert session.tokens == ctx.memory.tokens(0)
    if can_shift and can_cut:
        assert done.stats.n_reused == 7 + 2 * 15
        assert ctx.n_decoded - decoded == 2 * 15 + 3
    else:
        left = next(event for event in events if isinstance(event, TurnsLeft))
        assert left.n_recomputed == 2 * 15 if can_cut else 7 + 2 * 15


def test_turns_that_left_stay_out_until_asked_back() -> None:
    session = make_session(FakeContext(n_ctx=100))
    run(session, CHAT[:7])
    assert session.out_keys == {"0", "1"}
    turns = [*CHAT[:7], say("9", "ok")]
    done, events = run(session, turns)
    assert left_keys(events) == []
    assert done.tokens == cold([CHAT[0], *CHAT[3:7], say("9", "ok")], 100)
    session.out_keys.discard("1")
    done, events = run(session, [*CHAT[:5]])
    assert done.tokens == cold([CHAT[0], *CHAT[2:5]], 100)


def test_overflow_in_the_middle_of_a_reply() -> None:
    for can_shift in (True, False):
        ctx = FakeContext(n_ctx=60, can_shift=can_shift)
        session = make_session(ctx)
        done, events = run(session, CHAT[:3], n_predict=90)  # 37 tokens; room for 15 was there
        assert left_keys(events) == ["0"]
        assert done.reason == "context"  # only the pinned turn and the last one are left, and they are full
        assert len(session.tokens) == 60
        assert session.tokens == ctx.memory.tokens(0)
        assert session.tokens[:22] == list(b"system.<turn number 1>")
        assert tuple(session.tokens[22:]) == done.tokens[:-1]


def test_the_reply_after_a_shift_is_that_of_the_shifted_context() -> None:
    session = make_session(FakeContext(n_ctx=60))
    done, _ = run(session, CHAT[:3], n_predict=35)
    split = 60 - 37 + 1  # tokens chosen before turn 0 left
    cold_tokens = cold([CHAT[0], CHAT[2], Turn("r", done.tokens[:split])], 200, n_predict=35 - split)
    assert done.tokens[split:] == cold_tokens


def test_what_must_stay_but_does_not_fit() -> None:
    ctx = FakeContext(n_ctx=60)
    session = make_session(ctx)
    run(session, CHAT[:2])
    before = list(session.tokens), ctx.memory.tokens(0), set(session.out_keys)
    with pytest.raises(ContextFullError, match="shorten the message"):
        run(session, [*CHAT[:2], say("long", "x" * 60)])
    assert before == (session.tokens, ctx.memory.tokens(0), session.out_keys)
    done, _ = run(session, CHAT[:2])
    assert done.stats.n_computed == 1


def test_a_leading_bos_never_leaves() -> None:
    session = make_session(FakeContext(n_ctx=60))
    turns = [Turn("0", (BOS, *b"<turn number 0>")), *CHAT[2:5]]
    done, events = run(session, turns)
    assert left_keys(events) == ["0", "1"]
    assert session.tokens[:16] == [BOS, *b"<turn number 2>"]
    assert done.tokens == cold([Turn("b", (BOS,), pinned=True), *CHAT[3:5]], 60)


def test_a_sequence_that_somebody_else_changed_is_computed_again() -> None:
    ctx = FakeContext(n_ctx=500)
    session = make_session(ctx)
    turns = [say("1", "hello there")]
    run(session, turns)
    ctx.memory.seq_rm(0, 3, -1)
    done, _ = run(session, turns)
    assert done.stats.n_computed == 11
    assert done.tokens == cold(turns, 500)


def test_random_chats_are_what_a_cold_session_would_say() -> None:
    """Edits, forks, cancels and overflow in any order: the cache and the books agree, and so does the text."""
    rng = random.Random(1)
    for case in range(30):
        n_ctx = rng.choice([60, 100, 150])
        ctx = FakeContext(n_ctx=n_ctx, n_ubatch=7, can_shift=rng.random() < 0.7, can_cut=rng.random() < 0.7)
        session = make_session(ctx)
        turns = [say("s", "system", pinned=True)]
        for step in range(12):
            if len(turns) > 2 and rng.random() < 0.3:
                del turns[rng.randrange(1, len(turns)) :]
            turns.append(say(f"{case}.{step}", "m" * rng.randrange(1, 25)))
            done, _ = run(session, turns, rng.randrange(1, 30), rng.choice([-1, -1, 2, 3, 6]))
            assert session.tokens == ctx.memory.tokens(0)
            assert sum(span.n_tokens for span in session.spans) == len(session.tokens) + len(session.pending)
            turns.append(Turn(f"{case}.{step}r", done.tokens))
        kept = [turn for turn in turns if turn.key not in session.out_keys or turn is turns[-1]]
        del kept[-1:]
        kept.append(say("end", "bye"))
        done, events = run(session, [*turns[:-1], kept[-1]], 3)
        stays = [turn for turn in kept if turn.key not in left_keys(events)]
        assert done.tokens == cold(stays, n_ctx, 3)


def test_choose_leaving_and_ranges() -> None:
    spans = [Span("s", 5, True), Span("a", 10, False), Span("b", 10, False), Span("c", 10, False)]
    assert choose_leaving(spans, 40, 5, 10) == set()
    assert choose_leaving(spans, 39, 5, 4) == {"a"}
    assert choose_leaving(spans, 39, 5, 10) == {"a", "b"}
    assert choose_leaving(spans, 16, 5, 10) == {"a", "b"}
    with pytest.raises(ContextFullError):
        choose_leaving(spans, 15, 5, 10)
    assert ranges_of(spans, {"a", "b"}) == [(5, 25)]
    assert ranges_of(spans, {"a", "c"}) == [(5, 15), (25, 35)]
    assert ranges_of(spans, set()) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
)


@given(
    st.binary(max_size=40) | st.builds(lambda spans, out: json.dumps({"spans": spans, "out": out}).encode(), JSON, JSON)
)
def test_books_that_are_none_are_refused(data: bytes) -> None:
    try:
        spans, out_keys = unpack_books(data, 0)
    except StateFileError:
        return
    assert sum(span.n_tokens for span in spans) == 0
    assert all(isinstance(key, str) for key in out_keys)


@given(st.lists(st.tuples(st.text(), st.integers(0, 9), st.booleans())), st.sets(st.text()))
def test_books_come_back(entries: list[tuple[str, int, bool]], out_keys: set[str]) -> None:
    spans = [Span(*entry) for entry in entries]
    assert unpack_books(pack_books(spans, out_keys), sum(span.n_tokens for span in spans)) == (spans, out_keys)
