"""What the controller asks of the other threads; tests put stand-ins in their place."""

from __future__ import annotations

from typing import Protocol

from app.bridge.messages import EngineOptions, EstimateCost, Overflow, PromptMessage, Sampling
from app.storage.records import StoreRequest


class Engine(Protocol):
    """What the controller asks of the engine; `app.bridge.client.EngineClient` does it."""

    def load_model(self, path: str, n_threads: int | None, options: EngineOptions) -> int:
        """Load a model; returns the job's id."""

    def generate(
        self,
        chat_id: int,
        reply_id: int,
        messages: tuple[PromptMessage, ...],
        sampling: Sampling,
        n_predict: int,
        n_ctx: int,
        out_ids: frozenset[int],
        began_at: str,
        is_temporary: bool = False,
        overflow: Overflow = "shift",
    ) -> int:
        """Make a reply; returns the job's id."""

    def cancel(self, job_id: int) -> None:
        """Stop a job."""

    def estimate(self, request: EstimateCost) -> None:
        """Ask what sending a draft would cost."""

    def inspect(self, chat_id: int) -> None:
        """Ask what is in a chat's context."""

    def restore_chat(self, chat_id: int, n_ctx: int) -> None:
        """Have a chat's memory read for a reply that may be asked for soon."""

    def forget_chat(self, chat_id: int) -> None:
        """Let go of a chat's memory."""


class Store(Protocol):
    """What the controller asks of storage; `app.storage.client.StorageClient` does it."""

    def submit(self, request: StoreRequest) -> None:
        """Carry out a request in its turn."""
