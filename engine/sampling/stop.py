"""Stop strings: text is held back while it may be the beginning of one.

Stands between the detokenizer and the reader of the text: a stop string may begin in one token and end in another.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import SamplingParamError

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 1000


class StopStrings:
    """Watches streamed text for the first stop string.

    Args:
        stop: strings, none of them empty.

    Attributes:
        found: the stop string that ended the text, or "".

    Raises: SamplingParamError: an empty one, one that is too long, or too many.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if len(stop) > MAX_STOP_STRINGS:
            raise SamplingParamError("stop", len(stop), f"at most {MAX_STOP_STRINGS} stop strings")
        for text in stop:
            if not 1 <= len(text) <= MAX_STOP_CHARS:
                raise SamplingParamError("stop", text[:20], f"a stop string has 1 to {MAX_STOP_CHARS} characters")
        self._stop = tuple(stop)
        self._held = ""
        self.found = ""

    def push(self, text: str) -> str:
        """Take more text; returns what may be shown now. Once one is found, returns "" for ever."""
        if self.found:
            return ""
        self._held += text
        hits = [(at, -len(stop), stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if hits:
            at, _, self.found = min(hits)
            shown, self._held = self._held[:at], ""
            return shown
        keep = self._n_undecided()
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def flush(self) -> str:
        """The text still held back, at the end of the stream."""
        shown, self._held = self._held, ""
        return shown

    def _n_undecided(self) -> int:
        """Characters at the end of the held text that may be the beginning of a stop string."""
        longest = max((len(stop) for stop in self._stop), default=1) - 1
        for n in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-n:]
            if any(stop.startswith(tail) for stop in self._stop):
                return n
        return 0
