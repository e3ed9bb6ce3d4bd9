"""The jobs of one request, from the scheduler's thread to the loop; a client that has gone ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from functools import partial
from typing import TypeVar

from starlette.requests import Request

from engine.errors import EngineError
from engine.generate import Finished
from engine.scheduler import Job, JobEvent, JobFailed, JobRequest
from engine.server.answers import BadRequestError
from engine.server.served import Served

Result = TypeVar("Result")

CLIENT_GONE = 499
"""Nobody sees this status but the log. Source: nginx."""


class ClientGoneError(BadRequestError):
    """Whoever asked does not wait for the answer."""

    def __init__(self) -> None:
        super().__init__("the client has gone", status=CLIENT_GONE)


class Replies:
    """Jobs that are made together, one for each choice; `close` ends those that still run.

    Args:
        served: whose scheduler computes.
        requests: one for each choice, in order.

    Raises: QueueFullError, SchedulerClosedError, ParamError: none of them runs then.

    Thread: the loop's.
    """

    def __init__(self, served: Served, requests: Sequence[JobRequest]) -> None:
        self._served = served
        self._events: asyncio.Queue[tuple[int, JobEvent]] = asyncio.Queue()
        self._jobs: dict[int, Job] = {}
        self._held: list[tuple[int, JobEvent]] = []
        self.has_begun = False
        self._loop = asyncio.get_running_loop()
        try:
            for index, request in enumerate(requests):
                self._jobs[index] = served.scheduler.submit(request, partial(self._on_event, index))
        except EngineError:
            self.close()
            served.counters.n_refused += 1
            raise
        served.counters.n_requests += 1

    async def wait_for_first(self, request: Request) -> None:
        """Wait until the first job has begun or failed.

        Raises: the job's error, while the answer can still have a status; ClientGoneError.
        """
        index, event = await or_gone(request, self._next())
        if isinstance(event, JobFailed):
            raise event.error
        self._held.append((index, event))
        self.has_begun = True

    async def __aiter__(self) -> AsyncIterator[tuple[int, JobEvent]]:
        """Events with the index of their choice, until all choices have ended."""
        while self._held or self._jobs:
            yield self._held.pop(0) if self._held else await self._next()

    def _on_event(self, index: int, event: JobEvent) -> None:
        """Take an event, in the scheduler's thread."""
        self._loop.call_soon_threadsafe(self._events.put_nowait, (index, event))

    async def _next(self) -> tuple[int, JobEvent]:
        index, event = await self._events.get()
        if isinstance(event, (Finished, JobFailed)):
            self._jobs.pop(index, None)
            counters = self._served.counters
            if isinstance(event, Finished):
                counters.add(event.stats)
            else:
                counters.n_failed += 1
        return index, event

    def close(self) -> None:
        """End what still runs."""
        for job in self._jobs.values():
            self._served.counters.n_cancelled += 1
            self._served.scheduler.cancel(job)
        self._jobs.clear()


async def or_gone(request: Request, waiting: Awaitable[Result]) -> Result:
    """What something gives, unless the client goes before. Raises: ClientGoneError."""
    task = asyncio.ensure_future(waiting)
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
