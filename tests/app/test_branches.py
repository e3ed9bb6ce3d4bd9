"""The tree of messages in the cache: what an edit, a reply made again, a fork and a step back compute, to the token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.bridge.cancel import JobCancel
from app.bridge.local_engine import LocalEngine, LocalModel, LocalSession
from app.bridge.messages import EngineOptions, EstimateCost, Generate, Overflow, PromptMessage, Sampling
from app.bridge.pool import SessionPool
from app.bridge.port import Broken, Ended, PortEvent
from app.models.replay import asked_for
from tests.engine.oracle_cases import DATA

N_PREDICT = 6
GREEDY = Sampling(temperature=0.0)


class Chats:
    """A pool on a tiny model; messages are named by their ids, as in a chat."""

    def __init__(self, folder: Path, name: str) -> None:
        path = DATA / name / "model.gguf"
        self.model: LocalModel = LocalEngine().load_model(path, 1, EngineOptions(), lambda fraction: None)
        self.pool = SessionPool(self.model, folder, lambda event: None)
        self._n = 0

    def ask(
        self,
        chat_id: int,
        branch: list[PromptMessage],
        n_ctx: int = 0,
        overflow: Overflow = "shift",
        out_ids: frozenset[int] = frozenset(),
        sampling: Sampling = GREEDY,
    ) -> tuple[Ended, PromptMessage]:
        """Have the branch answered; also the reply as a message."""
        self._n += 1
        session, note = self.pool.take(chat_id, n_ctx, ())
        assert note == ""
        over, events = threading.Event(), list[PortEvent]()

        def on_event(event: PortEvent) -> None:
            events.append(event)
            if isinstance(event, (Ended, Broken)):
                over.set()

        reply_id = 10_000 + self._n
        request = Generate(
            self._n, chat_id, reply_id, tuple(branch), sampling, N_PREDICT, n_ctx, out_ids, overflow=overflow
        )
        self.pool.mark_dirty(chat_id, reply_id, is_kept=True)
        session.start(request, JobCancel(), on_event)
        assert over.wait(30)
        ended = events[-1]
        assert isinstance(ended, Ended), ended
        text = "".join(event.text for event in events if hasattr(event, "text"))
        return ended, PromptMessage(reply_id, "assistant", text, ended.token_ids, self.model.info.fingerprint)

    def n_tokens(self, branch: list[PromptMessage]) -> int:
        """Tokens of a branch with what makes the model reply."""
        turns = self.model.turns(Generate(0, 0, 99_999, tuple(branch), GREEDY, N_PREDICT, 0))
        return sum(len(turn.tokens) for turn in turns)

    def used_cells(self, chat_id: int) -> int:
        """Cells that all chats of the context have together."""
        session = self.pool.take(chat_id, 0, ())[0]
        assert isinstance(session, LocalSession)
        return int(session._session.ctx.get_kv_self().stats().used_cells)


@pytest.fixture(params=["llama", "gemma3"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chats]:
    chats = Chats(tmp_path, request.param)
    yield chats
    chats.pool.close()
    chats.model.close()


def question(i: int, text: str) -> PromptMessage:
    return PromptMessage(i, "user", text)


def common(chats: Chats, a: list[PromptMessage], b: list[PromptMessage]) -> int:
    """Tokens at the beginning of both prompts."""
    x, y = (
        [t for turn in chats.model.turns(Generate(0, 0, 0, tuple(m), GREEDY, 1, 0)) for t in turn.tokens]
        for m in (a, b)
    )
    return next((i for i, (s, t) in enumerate(zip(x, y, strict=False)) if s != t), min(len(x), len(y)))


def test_edit_regenerate_fork_and_step(chats: Chats) -> None:
    branch = [question(1, "hello there")]
    ended, reply = chats.ask(1, branch)
    assert ended.stats.n_computed == chats.n_tokens(branch)
    first = list(branch)
    branch += [reply, question(2, "and then what")]
    ended, reply = chats.ask(1, branch)
    # The newest token of a reply is shown before it is computed: it comes with the next question.
    assert ended.stats.n_reused == chats.n_tokens(first) + N_PREDICT - 1
    assert ended.stats.n_reused + ended.stats.n_computed == chats.n_tokens(branch)

    # Regenerate: the last token of the prompt alone.
    ended, again = chats.ask(1, branch)
    assert ended.stats.n_computed == 1
    assert again.text == reply.text

    # An edit of the second question: nothing before where it differs.
    edited = [*branch[:2], question(3, "and when was it")]
    ended, _ = chats.ask(1, edited)
    assert ended.stats.n_reused == common(chats, branch, edited)
    assert ended.stats.n_computed == chats.n_tokens(edited) - ended.stats.n_reused

    # A step back to the sibling: what both share is there.
    ended, _ = chats.ask(1, branch)
    assert ended.stats.n_reused == common(chats, branch, edited)

    # A fork: another chat with other ids of messages, and the same tokens.
    n_cells = chats.used_cells(1)
    fork = [
        question(101, "hello there"),
        PromptMessage(102, "assistant", *_made(branch[1])),
        question(103, "and no more"),
    ]
    ended, _ = chats.ask(2, fork)
    assert ended.stats.n_reused == common(chats, branch, fork) >= chats.n_tokens(first) + N_PREDICT
    assert ended.stats.n_computed == chats.n_tokens(fork) - ended.stats.n_reused
    # The fork takes what it adds, and the page at the edge.
    assert chats.used_cells(1) - n_cells <= ended.stats.n_computed + N_PREDICT + 64


def _made(message: PromptMessage) -> tuple[str, bytes, str]:
    return message.text, message.token_ids, message.model_fp


def test_forks_and_siblings_after_a_restart(chats: Chats, tmp_path: Path) -> None:
    branch = [question(1, "hello there")]
    _, reply = chats.ask(1, branch)
    branch += [reply, question(2, "and then what")]
    chats.ask(1, branch)
    chats.pool.drop(1)
    assert chats.used_cells(5) == 0
    edited = [*branch[:2], question(3, "and when was it")]
    ended, _ = chats.ask(1, edited)
    assert ended.stats.n_reused == common(chats, branch, edited)


def test_the_cost_is_known_before(chats: Chats) -> None:
    branch = [question(1, "hello there")]
    cold = chats.model.cost(EstimateCost(1, "hello there", tuple(branch), N_PREDICT, 0), None)
    ended, reply = chats.ask(1, branch)
    assert (cold.n_ready, cold.n_to_compute) == (0, ended.stats.n_computed)
    branch += [reply, question(2, "and then what")]
    own = chats.pool.in_memory(1)
    warm = chats.model.cost(EstimateCost(1, "and then what", tuple(branch), N_PREDICT, 0), own)
    ended, _ = chats.ask(1, branch)
    assert (warm.n_ready, warm.n_to_compute) == (ended.stats.n_reused, ended.stats.n_computed)
    assert 3 < warm.n_draft <= warm.n_to_compute and warm.n_leaving == 0
    long = "many words " * 90
    full = chats.model.cost(EstimateCost(1, long, (*branch, question(5, long)), N_PREDICT, 0), own)
    assert full.n_left < 0 and full.n_leaving == 0


def test_a_chat_with_a_smaller_context_shares_the_cache(chats: Chats) -> None:
    branch = [question(1, "a question of some length to be shared")]
    chats.ask(1, branch, 0)
    ended, _ = chats.ask(2, [question(9, branch[0].text)], 64)
    assert ended.stats.n_computed == 1
    session = chats.pool.take(2, 64, ())[0]
    assert session.n_ctx == 64


def test_a_full_context_stops_shifts_and_takes_back(chats: Chats) -> None:
    branch = [question(1, "the first one is here")]
    for i in range(2, 9):
        ended, reply = chats.ask(1, branch, 128, "stop")
        if ended.finish == "context":
            break
        branch += [reply, question(i, f"question number {i} now")]
    assert ended.finish == "context"
    session = chats.pool.in_memory(1)
    assert isinstance(session, LocalSession) and session.out_ids == frozenset()
    ended, reply = chats.ask(1, branch, 128, "shift")
    assert ended.finish == "length"
    out = session.out_ids
    assert 1 in out and branch[-1].message_id not in out
    ended, _ = chats.ask(1, branch, 128, "shift", out)
    assert ended.stats.n_computed == 1
    # What is asked back is computed again, where there is room for it.
    back = out - {max(out)}
    cost = chats.model.cost(EstimateCost(1, branch[-1].text, tuple(branch), 1, 128, back), session)
    assert cost.n_to_compute > 10


def test_a_reply_can_be_made_again_from_its_record(chats: Chats) -> None:
    branch = [question(1, "hello there")]
    drawn = Sampling(temperature=1.0, top_k=0, min_p=0.0, top_p=1.0)
    ended, _ = chats.ask(1, branch, sampling=drawn)
    other, _ = chats.ask(1, branch, sampling=drawn)
    assert other.token_ids != ended.token_ids, (other, ended)
    asked = asked_for(ended.record)
    assert asked is not None and asked[0].seed is not None and asked[1] == N_PREDICT
    for chat_id in (1, 2):  # warm, and in a new chat
        again, _ = chats.ask(chat_id, branch, sampling=asked[0])
        assert (again.token_ids, again.record) == (ended.token_ids, ended.record)
    chats.pool.drop(1)
    again, _ = chats.ask(1, branch, sampling=asked[0])
    assert again.token_ids == ended.token_ids


def test_the_inspector_tells_where_each_message_is(chats: Chats) -> None:
    branch = [question(1, "hello there")]
    _, reply = chats.ask(1, branch)
    branch += [reply, question(2, "and then what")]
    _, second = chats.ask(1, branch)
    view = chats.pool.inspect(1)
    assert (view.kv_type, view.n_used) == ("f16", chats.n_tokens(branch) + N_PREDICT - 1)
    rows = [(row.message_id, row.is_out) for row in view.rows]
    assert rows == [(1, False), (reply.message_id, False), (2, False), (second.message_id, False)]
    ends = [row.pos + row.n_tokens for row in view.rows]
    assert [row.pos for row in view.rows[1:]] == ends[:-1] and ends[-1] in (view.n_used, view.n_used + 1)
    assert "hello there" in view.text and "and then what" in view.text
    chats.pool.drop(1)
    cold = chats.pool.inspect(1)
    assert (cold.n_ctx, cold.rows) == (0, ()) and cold.file_bytes > 1000
