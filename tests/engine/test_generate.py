"""The loop over a context of our own: text, stops, ends, events."""

from __future__ import annotations

import pytest

from engine.cancel import CancelFlag
from engine.errors import BatchError, SamplingParamError
from engine.generate import Event, Finished, GenerateParams, TextDelta, generate
from engine.sampling import SamplerParams
from engine.session import PrefillProgress
from engine.turns import Turn
from tests.engine.fake_context import EOG, FakeContext, make_session

GREEDY = SamplerParams(temperature=0.0)
PROMPT = list(b"a prompt of some tokens")


def reply(ctx: FakeContext, n_predict: int = -1, stop: tuple[str, ...] = ()) -> tuple[str, Finished, list[Event]]:
    events = list(generate(make_session(ctx), PROMPT, GenerateParams(GREEDY, n_predict, stop)))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], Finished)
    return text, events[-1], events


def test_events_in_order() -> None:
    ctx = FakeContext()
    ctx.script = list(b"hi!")
    text, finished, events = reply(ctx)
    assert text == "hi!"
    assert finished.reason == "stop"
    assert finished.tokens == tuple(b"hi!")
    n = len(PROMPT)
    assert events[:5] == [PrefillProgress(k, n, 0) for k in (0, 8, 16, n - 1, n)]
    assert ctx.batches == [8, 8, n - 17, 1, 1, 1, 1]
    stats = finished.stats
    assert (stats.n_prompt, stats.n_reused, stats.n_computed, stats.n_generated) == (n, 0, n, 3)
    assert stats.tok_s > 0
    assert stats.prefill_ms > 0


def test_length() -> None:
    ctx = FakeContext()
    ctx.script = list(b"hello")
    text, finished, _ = reply(ctx, n_predict=3)
    assert (text, finished.reason, finished.tokens) == ("hel", "length", tuple(b"hel"))
    assert ctx.batches[4:] == [1, 1]  # the last one is not computed: nobody asks what follows


def test_length_zero_only_fills_the_cache() -> None:
    ctx = FakeContext()
    text, finished, _ = reply(ctx, n_predict=0)
    assert (text, finished.reason) == ("", "length")
    assert ctx.memory.tokens(0) == PROMPT


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (("lo w",), "hel"),
        (("xx", "rld"), "hello wo"),
        (("world!!",), "hello world"),
        (("h",), ""),
        (("d",), "hello worl"),
    ],
)
def test_stop_strings(stop: tuple[str, ...], text: str) -> None:
    ctx = FakeContext()
    ctx.script = list(b"hello world")
    got, finished, events = reply(ctx, stop=stop)
    assert got == text
    assert finished.stop == (stop[-1] if text != "hello world" else "")
    shown = ""
    for event in events:
        if isinstance(event, TextDelta):
            shown += event.text
            assert text.startswith(shown)


def test_characters_of_several_tokens_come_whole() -> None:
    ctx = FakeContext()
    ctx.script = list("é☂".encode())
    text, _, events = reply(ctx)
    assert text == "é☂"
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["", "é", "", "", "☂"]


def test_a_character_cut_by_the_end_is_marked() -> None:
    ctx = FakeContext()
    ctx.script = [0xE2]
    text, _, events = reply(ctx)
    assert text == "\N{REPLACEMENT CHARACTER}"
    assert events[-2] == TextDelta(text, None)


def test_end_tokens_can_be_ignored() -> None:
    ctx = FakeContext()
    ctx.script = [EOG, ord("a"), EOG]
    events = list(generate(make_session(ctx), PROMPT, GenerateParams(GREEDY, 3, ignore_eog=True)))
    assert isinstance(events[-1], Finished)
    assert events[-1].tokens == (EOG, ord("a"), EOG)


def test_cancel_before_in_the_prompt_and_in_the_reply() -> None:
    for at, n_cached in ((0, 0), (2, 16), (6, len(PROMPT) + 2)):
        ctx, cancel = FakeContext(n_ctx=200), CancelFlag()
        session = make_session(ctx)

        def count(ctx: FakeContext = ctx, cancel: CancelFlag = cancel, at: int = at) -> None:
            if len(ctx.batches) == at:
                cancel.set()

        ctx.on_decode = count
        events = list(generate(session, PROMPT, GenerateParams(GREEDY), cancel))
        assert isinstance(events[-1], Finished)
        assert events[-1].reason == "cancelled"
        assert session.tokens == ctx.memory.tokens(0)
        assert len(session.tokens) == n_cached
        assert ctx.abort_flag[0] == 0


def test_closing_the_iterator_frees_the_context() -> None:
    ctx, cancel = FakeContext(), CancelFlag()
    running = generate(make_session(ctx), PROMPT, GenerateParams(GREEDY), cancel)
    for event in running:
        if isinstance(event, TextDelta):
            break
    running.close()  # type: ignore[attr-defined]
    cancel.set()
    assert ctx.abort_flag[0] == 0


def test_the_cancel_flag_reaches_the_context_only_while_bound() -> None:
    ctx, cancel = FakeContext(), CancelFlag()
    with cancel.bound(ctx.abort_flag):
        assert ctx.abort_flag[0] == 0
        cancel.set()
        assert ctx.abort_flag[0] == 1
    assert ctx.abort_flag[0] == 0
    with cancel.bound(ctx.abort_flag):
        assert ctx.abort_flag[0] == 1


def test_requests_that_make_no_sense() -> None:
    ctx = FakeContext()
    for n_predict in (-2, True, 1.5):
        with pytest.raises(SamplingParamError):
            GenerateParams(n_predict=n_predict)  # type: ignore[arg-type]
    with pytest.raises(SamplingParamError):
        GenerateParams(stop=("",))
    with pytest.raises(BatchError):
        list(generate(make_session(ctx), [], GenerateParams()))
    with pytest.raises(BatchError):
        list(generate(make_session(ctx), [Turn("a", (1,)), 2], GenerateParams()))  # type: ignore[arg-type]


def test_same_seed_same_text() -> None:
    texts = set()
    for _ in range(2):
        events = list(generate(make_session(FakeContext()), PROMPT, GenerateParams(SamplerParams(seed=5), 20)))
        assert isinstance(events[-1], Finished)
        texts.add(events[-1].tokens)
    assert len(texts) == 1
