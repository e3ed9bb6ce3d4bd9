"""Stop strings across the borders of the pieces of text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import SamplingParamError
from engine.sampling import StopStrings


def stream(stop: list[str], pieces: list[str]) -> tuple[str, str]:
    watch = StopStrings(stop)
    shown = ""
    for piece in pieces:
        shown += watch.push(piece)
    return shown + watch.flush(), watch.found


@given(st.text("ab\n", max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.data())
def test_any_cut_gives_the_text_up_to_the_first_stop(text: str, stop: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, found = stream(stop, pieces)
    # The first to be complete wins; of those that are complete at once, the one that begins first.
    ends = {text.find(s) + len(s) for s in stop if s in text}
    if not ends:
        assert (shown, found) == (text, "")
    else:
        assert found in stop
        assert text.startswith(shown + found)
        assert not any(s in shown for s in stop)


def test_text_is_held_back_only_while_it_may_be_a_stop() -> None:
    watch = StopStrings(["</end>"])
    assert watch.push("hello </") == "hello "
    assert watch.push("e") == ""
    assert watch.push("m> x") == "</em> x"
    assert watch.push("</end> rest") == ""
    assert watch.found == "</end>"
    assert watch.push("more") == ""
    assert watch.flush() == ""


def test_limits() -> None:
    for stop in ([""], ["x" * 1001], ["x"] * 65):
        with pytest.raises(SamplingParamError):
            StopStrings(stop)
