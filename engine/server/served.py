"""What all handlers share: the model, its scheduler, the configuration and the counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import Request

from engine.embedding import Embedder
from engine.generate import GenerateStats
from engine.model import Model
from engine.prompt import PromptBuilder
from engine.scheduler import Scheduler
from engine.server.config import ServerConfig

Result = TypeVar("Result")


@dataclass(slots=True)
class Counters:
    """Totals since the start, for `/metrics`."""

    n_requests: int = 0
    n_refused: int = 0
    n_cancelled: int = 0
    n_failed: int = 0
    n_prompt_tokens: int = 0
    n_reused_tokens: int = 0
    n_generated_tokens: int = 0
    prefill_s: float = 0.0
    gen_s: float = 0.0

    def add(self, stats: GenerateStats) -> None:
        """Count a reply."""
        self.n_prompt_tokens += stats.n_computed
        self.n_reused_tokens += stats.n_reused
        self.n_generated_tokens += stats.n_generated
        self.prefill_s += stats.prefill_ms / 1e3
        self.gen_s += stats.gen_ms / 1e3


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A model that is served.

    Attributes:
        prompts: used in the text thread only.
        text_thread: templates and tokenizer, one request at a time, so that the loop stays free.
        started_at: seconds since the epoch.
    """

    model: Model
    scheduler: Scheduler
    embedder: Embedder
    config: ServerConfig
    prompts: PromptBuilder
    text_thread: ThreadPoolExecutor
    counters: Counters = field(default_factory=Counters)
    started_at: float = field(default_factory=time.time)

    @property
    def name(self) -> str:
        """The model's name for clients."""
        return self.config.alias or self.model.path.stem

    @property
    def n_vocab(self) -> int:
        """Tokens of the vocabulary."""
        return self.model.hparams.n_vocab

    async def in_text_thread(self, function: Callable[[], Result]) -> Result:
        """Run something with the template or the tokenizer."""
        return await asyncio.get_running_loop().run_in_executor(self.text_thread, function)

    async def in_scheduler(self, function: Callable[[], Result]) -> Result:
        """Run something with the context or a slot's session, between two steps."""
        return await asyncio.wrap_future(self.scheduler.call(function))

    def close(self) -> None:
        """End the jobs and the threads. Blocks."""
        self.scheduler.close()
        self.text_thread.shutdown()
        self.embedder.close()


def served_of(request: Request) -> Served:
    """What a request is served from."""
    served: Served = request.app.state.served
    return served
