"""An engine for tests: a token is a word, a reply is counted words, and the memory is a list of words."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from app.bridge.cancel import JobCancel
from app.bridge.context_view import ContextView, Cost
from app.bridge.messages import EngineOptions, EstimateCost, Finish, Generate, ModelInfo, ReplyStats, UserError
from app.bridge.port import Broken, ChatModel, ChatSession, Ended, Generated, PortEvent, Prefilled


class FakeError(Exception):
    """An error of the fake engine."""


@dataclass
class FakeEngine:
    """Loads any file that exists and does not hold the word "damaged".

    Attributes:
        n_words: length of each reply, in words.
        delay_s: time each token takes.
        fail_after: a reply breaks after so many words.
        threads: names of the threads it was used in.
        open_sessions: how many sessions are in memory.
    """

    n_words: int = 5
    delay_s: float = 0.0
    load_s: float = 0.0
    save_s: float = 0.0
    fail_after: int | None = None
    threads: set[int] = field(default_factory=set)
    open_sessions: int = 0
    open_copies: int = 0
    max_open_sessions: int = 0
    n_loaded: int = 0
    requests: list[Generate] = field(default_factory=list)

    def load_model(
        self, path: Path, n_threads: int | None, options: EngineOptions, progress: Callable[[float], None]
    ) -> ChatModel:
        self.threads.add(threading.get_ident())
        for i in range(10):
            time.sleep(self.load_s / 10)
            progress(i / 10)
        if "damaged" in path.read_text():
            raise FakeError("damaged")
        self.n_loaded += 1
        return FakeModel(self, path)

    def explain(self, error: BaseException) -> UserError:
        return UserError("Fake", f"It broke: {error}.", "Mend it.")


class FakeModel:
    def __init__(self, engine: FakeEngine, path: Path) -> None:
        self.engine = engine
        self.info = ModelInfo(str(path), path.stem, "fake", 4096, f"fp-{path.stem}")

    def cost(self, request: EstimateCost, session: ChatSession | None) -> Cost:
        return Cost(len(request.draft.split()), 0, sum(len(m.text.split()) for m in request.messages), 500, 0)

    def open_session(self, n_ctx: int) -> ChatSession:
        self.engine.open_sessions += 1
        self.engine.max_open_sessions = max(self.engine.max_open_sessions, self.engine.open_sessions)
        return FakeSession(self, n_ctx or 1000)

    def close(self) -> None:
        assert self.engine.open_sessions == 0
        self.engine.n_loaded -= 1


class FakeCopy:
    def __init__(self, engine: FakeEngine, state: str) -> None:
        self.engine, self.state = engine, state
        engine.open_copies += 1

    def write(self, path: Path) -> int:
        time.sleep(self.engine.save_s)
        path.write_text(self.state)
        return len(self.state)

    def close(self) -> None:
        self.engine.open_copies -= 1


class FakeSession:
    def __init__(self, model: FakeModel, n_ctx: int) -> None:
        self.model = model
        self.n_ctx = n_ctx
        self.words: list[str] = []
        self.out_ids: frozenset[int] = frozenset()

    @property
    def n_used(self) -> int:
        return len(self.words)

    def start(self, request: Generate, cancel: JobCancel, on_event: Callable[[PortEvent], None]) -> None:
        def run() -> None:
            try:
                for event in self._reply(request, cancel):
                    on_event(event)
            except FakeError as error:
                on_event(Broken(error))

        threading.Thread(target=run).start()

    def _reply(self, request: Generate, cancel: JobCancel) -> Iterator[PortEvent]:
        engine = self.model.engine
        engine.threads.add(threading.get_ident())
        engine.requests.append(request)
        prompt = self._prompt(request)
        n_reused = 0
        while n_reused < min(len(prompt), len(self.words)) and prompt[n_reused] == self.words[n_reused]:
            n_reused += 1
        self.words = prompt
        n_new = len(prompt) - n_reused
        yield Prefilled(0, n_new, n_reused)
        yield Prefilled(n_new, n_new, n_reused)
        finish: Finish = "stop"
        made: list[int] = []
        stop = threading.Event()
        cancel.pass_on(stop.set)
        for i in range(min(engine.n_words, request.n_predict)):
            if engine.fail_after is not None and i >= engine.fail_after:
                raise FakeError("out of words")
            if stop.wait(engine.delay_s) if engine.delay_s else stop.is_set():
                finish = "cancelled"
                break
            word = f"w{i}"
            self.words.append(word)
            made.append(i)
            yield Generated(word + " ")
        else:
            if engine.n_words > request.n_predict:
                finish = "length"
        stats = ReplyStats(len(prompt), n_reused, n_new, len(made), 1.0, 1.0 + len(made), 50.0)
        yield Ended(finish, stats, b"".join(i.to_bytes(4, "little") for i in made))

    def _prompt(self, request: Generate) -> list[str]:
        """Whole messages leave, the oldest first, until the rest and a reply fit."""
        kept = list(request.messages)
        out = set(request.out_ids)
        kept = [m for m in kept if m.message_id not in out]
        while len(kept) > 1 and sum(len(m.text.split()) for m in kept) + self.model.engine.n_words > self.n_ctx:
            first = next(m for m in kept if not m.is_pinned)
            kept.remove(first)
            out.add(first.message_id)
        self.out_ids = frozenset(out)
        return [word for m in kept for word in m.text.split()]

    def inspect(self, chat_id: int) -> ContextView:
        return ContextView(chat_id, (), " ".join(self.words), "words", len(self.words), self.n_ctx)

    def snapshot(self) -> FakeCopy:
        return FakeCopy(self.model.engine, json.dumps({"words": self.words, "out": sorted(self.out_ids)}))

    def load(self, path: Path) -> str:
        try:
            state = json.loads(path.read_text())
        except ValueError:
            return "The saved memory is damaged."
        self.words, self.out_ids = state["words"], frozenset(state["out"])
        return ""

    def close(self) -> None:
        self.model.engine.open_sessions -= 1
