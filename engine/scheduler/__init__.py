"""Many replies from one context: jobs of any thread, computed together in one batch."""

from engine.scheduler.core import Scheduler
from engine.scheduler.job import Job, JobEvent, JobFailed, JobRequest, QueueFullError, SchedulerClosedError, TokenScored
from engine.scheduler.slots import Slot, SlotInfo

__all__ = [
    "Job",
    "JobEvent",
    "JobFailed",
    "JobRequest",
    "QueueFullError",
    "Scheduler",
    "SchedulerClosedError",
    "Slot",
    "SlotInfo",
    "TokenScored",
]
