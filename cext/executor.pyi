from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from cext.threadpool import ThreadPool
from cext.weights import LargeBuffer, PackedWeight

STATUS_OK: int
STATUS_ABORTED: int
STATUS_NOT_FINITE: int

_F32 = npt.NDArray[np.float32]
_Place = tuple[int, int, int, int]

def isa() -> str: ...
def isas() -> list[str]: ...
def force_isa(name: str) -> None: ...

class Program:
    names: list[str]
    arena_bytes: int
    slot_bytes: int
    n_caches: int
    rope_axes: int
    def add_rope(
        self,
        kind: int,
        n_rot: int,
        freq_base: float,
        freq_scale: float,
        ext_factor: float,
        attn_factor: float,
        beta_fast: float,
        beta_slow: float,
        n_ctx_orig: int,
        factors: _F32 | None,
        sections: tuple[int, ...] = (),
    ) -> int: ...
    def add_attn(
        self,
        cache: int,
        n_head: int,
        n_head_kv: int,
        d_k: int,
        d_v: int,
        type_k: int,
        type_v: int,
        k_off: int,
        v_off: int,
        scale: float,
        softcap: float,
        swa_kind: int,
        n_swa: int,
        causal: bool,
        max_alibi_bias: float,
        sinks: _F32 | None,
        rel_bias: _F32 | None,
        rel_max: int,
        rope: int,
        v_in_k: bool = False,
    ) -> int: ...
    def add_table(self, weight: PackedWeight) -> int: ...
    def add_mapped(self, type: int, n_rows: int, n_cols: int, data: npt.NDArray[np.uint8]) -> int: ...
    def begin_rows(self, rows_are_outputs: bool, row_factor: int, name: str) -> None: ...
    def row_op(
        self,
        kind: int,
        arg: int,
        n: int,
        n_sub: int,
        n_rot: int,
        f: float,
        x: _Place,
        y: _Place,
        z: _Place,
        out: _Place,
        w: _F32 | None = None,
        b: _F32 | None = None,
        n_w: int = 0,
    ) -> None: ...
    def sort(
        self,
        rows_are_outputs: bool,
        name: str,
        n_expert: int,
        n_used: int,
        ids: _Place,
        token_of: _Place,
        sorted_of: _Place,
        offsets: _Place,
    ) -> None: ...
    def matmul(
        self,
        rows_are_outputs: bool,
        name: str,
        is_q8: bool,
        x: _Place,
        items: Sequence[tuple[PackedWeight, _F32 | None, _Place]],
        glu: int,
        row_factor: int = 1,
        offsets: _Place | None = None,
    ) -> None: ...
    def matmul_heads(self, rows_are_outputs: bool, name: str, x: _Place, weight: PackedWeight, out: _Place) -> None: ...
    def attn(self, name: str, attn: int, q: _Place, out: _Place) -> None: ...
    def recurrent(
        self,
        name: str,
        kind: int,
        arg: int,
        n_head: int,
        d_k: int,
        d_v: int,
        n_group: int,
        state_off: int,
        inputs: Sequence[_Place],
        out: _Place,
        w: _F32 | None = None,
        n_w: int = 0,
        b: _F32 | None = None,
        n_b: int = 0,
    ) -> None: ...
    def finish(self, n_tokens_max: int, n_ctx: int, arena_bytes: int) -> None: ...
    @property
    def n_stages(self) -> int: ...
    @property
    def stage_ns(self) -> tuple[int, int, int]: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...

class Binding:
    failed_stage: int
    poll_period_ns: int
    def __init__(self) -> None: ...
    def release(self) -> None: ...
    def bind(
        self,
        n_tokens: int,
        n_outputs: int,
        tokens: npt.NDArray[np.int32] | None,
        embd: _F32 | None,
        n_embd: int,
        pos: npt.NDArray[np.int32],
        rope_pos: npt.NDArray[np.int32],
        out_ids: npt.NDArray[np.int32],
        logits: _F32 | None,
        n_vocab: int,
        logits_row: int,
        embd_out: _F32 | None,
        n_embd_out: int,
    ) -> None: ...
    def bind_cache(
        self,
        i: int,
        pages: npt.NDArray[np.uint64],
        cells: npt.NDArray[np.int32],
        runs: npt.NDArray[np.void],
        segments: npt.NDArray[np.void],
        n_segments: int,
    ) -> None: ...
    def bind_states(self, states: npt.NDArray[np.uint64]) -> None: ...
    def run(
        self,
        program: Program,
        pool: ThreadPool,
        n_threads: int,
        arena: LargeBuffer,
        work: LargeBuffer,
        abort_flag: npt.NDArray[np.int32],
        poll: Callable[[], bool] | None = None,
        check: bool = False,
    ) -> int: ...

def work_bytes(program: Program, n_threads: int) -> int: ...
