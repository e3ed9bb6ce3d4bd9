"""What of a session goes into a file: the books of a chat beside the memory of its sequence.

Stands between `engine.session`, which fills and reads it, and `engine.session_log`, which is the file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType

from engine.errors import StateFileError
from engine.memory import Memory
from engine.state import SavedTokens, StateInfo
from engine.turns import Span
from engine.types import I64Array


def pack_books(spans: Sequence[Span], out_keys: Collection[str]) -> bytes:
    """Whose tokens are in the context, and who left it."""
    books = {"spans": [[s.key, s.n_tokens, s.pinned] for s in spans], "out": sorted(out_keys)}
    return json.dumps(books, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def unpack_books(data: bytes, n_tokens: int) -> tuple[list[Span], set[str]]:
    """Read what `pack_books` wrote for a context of n_tokens.

    Raises: StateFileError: it is not that, or does not fit the tokens.
    """
    try:
        books = json.loads(data.decode(errors="surrogatepass"))
        spans = [Span(key, n, pinned) for key, n, pinned in books["spans"]]
        out_keys = books["out"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StateFileError(f"the books of the chat cannot be read: {error}") from None
    for span in spans:
        if not (isinstance(span.key, str) and type(span.n_tokens) is int and type(span.pinned) is bool):
            raise StateFileError("the books of the chat have a turn of another kind")
    if not isinstance(out_keys, list) or not all(isinstance(key, str) for key in out_keys):
        raise StateFileError("the books of the chat have a key of another kind")
    if min((span.n_tokens for span in spans), default=0) < 0 or sum(span.n_tokens for span in spans) != n_tokens:
        raise StateFileError(f"the books of the chat do not fit its {n_tokens:,} tokens")
    return spans, set(out_keys)


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as it was, sharing its pages: it can be written while the chat goes on.

    Attributes:
        memory: a clone that belongs to the snapshot.
        births: i64[n_tokens], a number for each token that no other token of the session ever had.

    Thread: any, one at a time. Close it, or its pages stay.
    """

    info: StateInfo
    memory: Memory
    seq_id: int
    beside: SavedTokens
    births: I64Array

    def close(self) -> None:
        """Let go of the pages."""
        self.memory.close()

    def __enter__(self) -> SessionSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
