"""What an observer of a context is shown of a run: `Context.set_eval_callback`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

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
        if place.n_expert:
            first = place.first_pairs // 4
            bounds = values[first : first + place.n_expert + 1].view(np.int32)
            for expert, (begin, end) in enumerate(pairwise(bounds.tolist())):
                if begin < end:
                    callback(f"{place.name}[{expert}]", _rows(values, place, begin, end))
            continue
        n_rows = len(ubatch.out_ids) if place.rows is Symbol.N_OUTPUTS else ubatch.n_tokens
        if n_rows:
            callback(place.name, _rows(values, place, 0, n_rows))


def _rows(values: F32Array, place: NodePlace, begin: int, end: int) -> F32Array:
    """Rows begin to end of a node, copied: what is kept of them must outlive the arena."""
    first = place.offset // 4 + begin * place.ld
    last = first + (end - begin - 1) * place.ld + place.n
    return as_strided(values[first:last], (end - begin, place.n), (4 * place.ld, 4)).copy()
