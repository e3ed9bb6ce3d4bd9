"""What an observer of a context is shown of a run: `Context.set_eval_callback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from cext.weights import LargeBuffer
from engine.backend.cpu.stages import NodePlace
from engine.batch import UBatch
from engine.graph.tensor import Symbol
from engine.types import F32Array

EvalCallback = Callable[[str, F32Array], None]


def report_nodes(places: Sequence[NodePlace], arena: LargeBuffer, ubatch: UBatch, callback: EvalCallback) -> None:
    """Show the callback every node that the run of a micro batch left in the arena; what it raises comes through."""
    values: F32Array = np.frombuffer(arena.view(), dtype=np.float32)
    for place in places:
        n_rows = len(ubatch.out_ids) if place.rows is Symbol.N_OUTPUTS else ubatch.n_tokens
        if n_rows:
            first = place.offset // 4
            end = first + (n_rows - 1) * place.ld + place.n
            # A copy: what is kept of it must outlive the arena.
            callback(place.name, as_strided(values[first:end], (n_rows, place.n), (4 * place.ld, 4)).copy())
