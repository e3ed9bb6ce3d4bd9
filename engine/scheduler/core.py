"""The scheduler: takes jobs from any thread and computes all that run in one batch, step by step.

Stands above `engine.generate`: a step gives every slot that generates its newest token, fills up with parts of prompts,
decodes once, and lets each reply that has logits choose its next token.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from engine.batch import Batch
from engine.context.core import Context, DecodeStatus
from engine.errors import ContextFullError, EngineError
from engine.generate import Finished, GenerateStats, Reply, TextDelta
from engine.scheduler.job import Job, JobEvent, JobFailed, JobRequest, QueueFullError, SchedulerClosedError, score
from engine.scheduler.slots import Slot, SlotInfo, Slots

Result = TypeVar("Result")

PROMPT_SHARE = 128
"""Tokens of prompts in a step while others generate: so many cost them little, and many at a time compute well."""


class Scheduler:
    """Serves the slots of a context.

    Args:
        ctx: used by nobody else; it is closed by its owner, after `close`.
        n_queue_max: jobs that may wait for a slot.

    Thread: any; the computing is done in a thread of its own.
    """

    def __init__(self, ctx: Context, n_queue_max: int = 64) -> None:
        self._ctx, self._n_queue_max = ctx, n_queue_max
        self._slots = Slots(ctx)
        self._wake = threading.Condition()
        self._queue: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._is_closing = self._has_ended = False
        self._thread = threading.Thread(target=self._main, name="scheduler")
        self._thread.start()

    # -- for other threads -------------------------------------------------------------------------------------------

    def submit(self, request: JobRequest, on_event: Callable[[JobEvent], None]) -> Job:
        """Let a job wait for a slot; on_event is called in the scheduler's thread.

        Raises: QueueFullError, SchedulerClosedError; ParamError: no such slot.
        """
        if request.slot_id is not None:
            self._slots.get(request.slot_id)
        job = Job(request, on_event)
        with self._wake:
            if self._is_closing or self._has_ended:
                raise SchedulerClosedError
            if len(self._queue) >= self._n_queue_max:
                raise QueueFullError(len(self._queue))
            self._queue.append(job)
            self._wake.notify()
        return job

    def cancel(self, job: Job) -> None:
        """End a job soon; its last event says so. A job that has ended is left alone."""
        with self._wake:
            job.cancel.set()
            self._abort_if_nobody_waits()
            self._wake.notify()

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Run something between two steps, in the thread that owns the context and the slots' sessions."""
        future: Future[Result] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except (EngineError, OSError, MemoryError) as error:
                    future.set_exception(error)

        with self._wake:
            if self._is_closing or self._has_ended:
                raise SchedulerClosedError
            self._calls.append(run)
            self._wake.notify()
        return future

    def slot(self, slot_id: int) -> Slot:
        """A slot; only `call` may touch its session. Raises: ParamError: there is none."""
        return self._slots.get(slot_id)

    def infos(self) -> tuple[SlotInfo, ...]:
        """What the slots do now."""
        return self._slots.infos()

    @property
    def n_waiting(self) -> int:
        """Jobs that wait for a slot."""
        return len(self._queue)

    @property
    def is_running(self) -> bool:
        """Whether it takes jobs."""
        return not (self._is_closing or self._has_ended)

    def close(self) -> None:
        """End all jobs and the thread."""
        with self._wake:
            self._is_closing = True
            self._abort_if_nobody_waits()
            self._wake.notify()
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while self._wait():
                while self._calls:
                    self._calls.popleft()()
                self._drop_cancelled()
                self._fill_slots()
                if self._slots.active():
                    self._step()
        finally:
            self._end()

    def _wait(self) -> bool:
        """Sleep until there is something to do; False when it is to end."""
        with self._wake:
            while not (self._is_closing or self._queue or self._calls or self._slots.active()):
                self._wake.wait()
            return not self._is_closing

    def _drop_cancelled(self) -> None:
        for slot in self._slots.active():
            if slot.job is not None and slot.job.cancel.is_set():
                self._finish(slot)
        with self._wake:
            gone = [job for job in self._queue if job.cancel.is_set()]
            self._queue = deque(job for job in self._queue if not job.cancel.is_set())
        for job in gone:
            job.on_event(Finished("cancelled", (), "", GenerateStats(0, 0, 0, 0, 0.0, 0.0, 0.0)))

    def _fill_slots(self) -> None:
        """Give waiting jobs to idle slots, in the order they came; one that wants a busy slot lets others pass."""
        for job in list(self._queue):
            slot = self._slots.choose(job.request)
            if slot is not None:
                with self._wake:
                    self._queue.remove(job)
                self._start(slot, job)

    def _start(self, slot: Slot, job: Job) -> None:
        request, session = job.request, slot.session
        if not request.is_prompt_cached:
            session.clear()
        slot.job = job
        try:
            if request.n_reuse:
                session.move_chunks(request.turns(), request.n_reuse)
            slot.reply = Reply(session, request.prompt, request.params, job.cancel)
            self._ctx.abort_flag[0] = 0  # a source is encoded now
            for event in slot.reply.begin():
                job.on_event(event)
            if slot.reply.is_over():
                self._finish(slot)
            else:
                self._tell_progress(slot)
        except EngineError as error:
            self._fail(slot, error)

    def _step(self) -> None:
        """Compute a batch of what is pending, and choose the next token of every reply that has logits."""
        parts = self._parts()
        try:
            with self._wake:
                self._ctx.abort_flag[0] = 0
                self._abort_if_nobody_waits()
            status = self._ctx.decode(Batch.join([batch for _, batch in parts]))
        except ContextFullError as error:
            if not self._slots.forget_oldest():
                self._fail(max(self._slots.active(), key=lambda slot: len(slot.session.pending)), error)
            return
        except (EngineError, MemoryError) as error:
            for slot, _ in parts:
                self._fail(slot, error)
            return
        if status is not DecodeStatus.OK:
            return
        row = -1
        for slot, batch in parts:
            row += batch.n_tokens
            slot.session.mark_decoded(batch.n_tokens)
            self._tell_progress(slot)
            if slot.session.is_ready:
                self._choose(slot, row)

    def _parts(self) -> list[tuple[Slot, Batch]]:
        """What each slot adds to the next batch: a token where it generates, else a part of its prompt."""
        active = self._slots.active()
        generating = [slot for slot in active if slot.is_generating]
        n_left = min(PROMPT_SHARE, self._ctx.n_ubatch()) if generating else self._ctx.n_ubatch()
        parts = [(slot, slot.session.next_batch(1)) for slot in generating]
        for slot in active:
            if n_left > 0 and not slot.is_generating:
                batch = slot.session.next_batch(n_left)
                parts.append((slot, batch))
                n_left -= batch.n_tokens
        return parts

    def _choose(self, slot: Slot, row: int) -> None:
        """Let a reply choose its next token from the logits of a token of the batch."""
        job, reply = slot.job, slot.reply
        assert job is not None
        assert reply is not None
        try:
            if not reply.is_over():
                logits = self._ctx.get_logits_ith(row)
                for event in reply.step(logits):
                    if job.request.n_top is not None and isinstance(event, TextDelta) and event.token is not None:
                        job.on_event(score(logits, event.token, job.request.n_top))
                    job.on_event(event)
            if reply.is_over():
                self._finish(slot)
        except EngineError as error:
            self._fail(slot, error)

    def _tell_progress(self, slot: Slot) -> None:
        assert slot.job is not None
        progress = slot.reply.progress() if slot.reply is not None else None
        if progress is not None:
            slot.job.on_event(progress)

    def _finish(self, slot: Slot) -> None:
        job, reply = slot.job, slot.reply
        assert job is not None
        assert reply is not None
        events = list(reply.finish())
        slot.free()
        for event in events:
            job.on_event(event)

    def _fail(self, slot: Slot, error: Exception) -> None:
        job = slot.job
        assert job is not None
        slot.free()
        job.on_event(JobFailed(error))

    def _abort_if_nobody_waits(self) -> None:
        """Stop the decode under way where all jobs in it were cancelled, or all is to end. The lock is held."""
        jobs = [slot.job for slot in self._slots.active()]
        if self._is_closing or (jobs and all(job is None or job.cancel.is_set() for job in jobs)):
            self._ctx.abort_flag[0] = 1

    def _end(self) -> None:
        with self._wake:
            self._has_ended = True
            waiting, self._queue = list(self._queue), deque()
            calls, self._calls = list(self._calls), deque()
        for slot in self._slots.active():
            self._fail(slot, SchedulerClosedError())
        for job in waiting:
            job.on_event(JobFailed(SchedulerClosedError()))
        for call in calls:
            call()
