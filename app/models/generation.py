"""What the model is doing for the open chat: the state that the composer, the meter and the status line show."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import QObject, Signal


class Phase(Enum):
    """Where the open chat stands."""

    NO_MODEL = "no model"
    LOADING = "loading"
    IDLE = "idle"
    PREFILL = "prefill"  # also while a message waits for its turn
    GENERATING = "generating"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class GenerationValues:
    """All that `GenerationState` shows, as one value.

    Attributes:
        load_fraction: 0 to 1 while the model loads.
        n_ctx: tokens that the chat's context holds.
        n_used: tokens in it.
        n_reused: tokens of the last prompt that were ready.
        n_computed: tokens of the last prompt computed so far.
        n_to_compute: tokens of the last prompt that were not ready.
        tok_s: tokens generated a second.
        n_generated: tokens of the current or last reply.
        note: one line for the status line.
        error: what went wrong, a sentence; empty where nothing did.
        n_draft: tokens of the draft; 0 while its cost is not known. If it were sent, n_ready tokens would be ready and
            n_missing had to be computed, in cost_s seconds; n_leaving messages would leave and n_left tokens be free.
    """

    phase: Phase = Phase.NO_MODEL
    model_name: str = ""
    load_fraction: float = 0.0
    n_ctx: int = 0
    n_used: int = 0
    n_reused: int = 0
    n_computed: int = 0
    n_to_compute: int = 0
    tok_s: float = 0.0
    n_generated: int = 0
    note: str = ""
    error: str = ""
    n_draft: int = 0
    n_ready: int = 0
    n_missing: int = 0
    n_leaving: int = 0
    n_left: int = 0
    cost_s: float = 0.0


class GenerationState(QObject):
    """The values of `GenerationValues` as attributes, with a signal when any of them changed.

    Signals:
        changed: some value differs from before.

    Thread: GUI thread.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._values = GenerationValues()
        self._take(self._values)

    @property
    def values(self) -> GenerationValues:
        """All values at once."""
        return self._values

    def set(self, values: GenerationValues) -> None:
        """Take over all values; emits `changed` where one differs."""
        if values != self._values:
            self._take(values)
            self.changed.emit()

    def _take(self, values: GenerationValues) -> None:
        self._values = values
        self.phase = values.phase
        self.model_name = values.model_name
        self.load_fraction = values.load_fraction
        self.n_ctx = values.n_ctx
        self.n_used = values.n_used
        self.n_reused = values.n_reused
        self.n_computed = values.n_computed
        self.n_to_compute = values.n_to_compute
        self.tok_s = values.tok_s
        self.n_generated = values.n_generated
        self.note = values.note
        self.error = values.error
        self.n_draft = values.n_draft
        self.n_ready = values.n_ready
        self.n_missing = values.n_missing
        self.n_leaving = values.n_leaving
        self.n_left = values.n_left
        self.cost_s = values.cost_s
