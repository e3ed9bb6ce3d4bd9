"""Images in the memory of a model whose tokens have a time, a row and a column."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.batch import Batch
from engine.errors import BatchError, ContextFullError, StateFileError, UnsupportedCallError
from engine.io import BlockReader, BlockWriter
from engine.session_rows import LogRows, LogSink, LogSource
from engine.state import SavedTokens, read_state, write_state
from engine.types import F32Array, F32Logits, I32Array
from tests.engine.oracle_cases import DATA, context, nmse
from tests.engine.test_state import with_checksums_made_right

CASES = ("qwen2vl", "qwen25vl")
MODEL = "qwen2vl"
SAME = 1e-11


@dataclass(frozen=True)
class Case:
    """A text with an image: its batches and the logits of all rows."""

    before: list[int]
    embd: F32Array
    axes: I32Array
    after: list[int]
    next_pos: int
    want: F32Logits

    @property
    def first(self) -> int:
        """The image's position."""
        return len(self.before)

    def text(self, **more: object) -> Batch:
        return Batch.from_tokens(self.before, logits="all", **more)  # type: ignore[arg-type]

    def image(self, **more: object) -> Batch:
        return Batch.from_embeddings(self.embd, self.axes, logits="all", **more)  # type: ignore[arg-type]

    def rest(self, **more: object) -> Batch:
        return Batch.from_tokens(self.after, self.next_pos, logits="all", **more)  # type: ignore[arg-type]

    @property
    def want_rest(self) -> F32Logits:
        """The logits behind the image."""
        return self.want[-len(self.after) :]


@cache
def load(name: str) -> Case:
    """A case: qwen2vl's logits are the reference's, those of the larger image the model's own, token by token."""
    said = json.loads((DATA / name / "case.json").read_text())
    before, after, pos = said["tokens_before"], said["tokens_after"], said["position_after_image"]
    embd, axes = np.load(DATA / name / "expected_embd.npy"), np.array(said["image_positions"], np.int32)
    none = np.zeros((0, 0), np.float32)
    case = Case(before, embd, axes, after, pos, np.load(DATA / MODEL / "expected.npy") if name == MODEL else none)
    return case if len(case.want) else replace(case, want=token_by_token(case))


def token_by_token(case: Case) -> F32Logits:
    batches = [Batch.from_tokens([token], i) for i, token in enumerate(case.before)]
    batches += [Batch.from_embeddings(case.embd[i : i + 1], case.axes[:, i : i + 1]) for i in range(len(case.embd))]
    batches += [Batch.from_tokens([token], None) for token in case.after]
    return logits_of(context(MODEL), *batches)


def logits_of(ctx: engine.Context, *batches: Batch) -> F32Logits:
    rows = []
    for batch in batches:
        ctx.decode(batch)
        rows.append(ctx.get_logits().copy())
    return np.concatenate(rows)


def with_image(case: Case, **more: object) -> engine.Context:
    """A context that has seen the text before the image and the image."""
    ctx = context(MODEL, **more)
    logits_of(ctx, case.text(), case.image())
    return ctx


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n_ubatch", [256, 8, 4, 1])
def test_a_text_with_an_image_in_chunks(name: str, n_ubatch: int) -> None:
    case = load(name)
    ctx = context(MODEL, n_ubatch=n_ubatch)
    assert nmse(logits_of(ctx, case.text(), case.image(), case.rest()), case.want) < SAME


def test_a_text_with_an_image_token_by_token() -> None:
    case = load("qwen2vl")
    assert nmse(token_by_token(case), case.want) < SAME


@pytest.mark.parametrize("name", CASES)
def test_a_fourth_axis_changes_nothing(name: str) -> None:
    case = load(name)
    axes = np.concatenate([case.axes, np.zeros((1, len(case.embd)), np.int32)])
    image = Batch.from_embeddings(case.embd, axes.tolist(), logits="all")
    assert nmse(logits_of(context(MODEL), case.text(), image, case.rest()), case.want) < SAME


def test_two_sequences_with_images_in_one_batch() -> None:
    case = load("qwen25vl")
    ctx = context(MODEL, n_ubatch=16)
    ctx.decode(Batch.join([case.text(), case.text(seq_id=1)]))
    part = Batch.from_embeddings(case.embd[:7], case.axes[:, :7], 1, "all")
    ctx.decode(Batch.join([part, case.image()]))
    n = len(case.before)
    assert nmse(ctx.get_logits(), np.concatenate([case.want[n : n + 7], case.want[n : n + len(case.embd)]])) < SAME
    ctx.decode(Batch.from_embeddings(case.embd[7:], case.axes[:, 7:], 1))
    ctx.decode(Batch.join([case.rest(), case.rest(seq_id=1)]))
    assert nmse(ctx.get_logits(), np.concatenate([case.want_rest, case.want_rest])) < SAME


def test_an_image_that_two_sequences_share() -> None:
    case = load("qwen25vl")
    ctx = context(MODEL)
    logits_of(ctx, case.text(seq_id=(0, 2)), case.image(seq_id=(0, 2)))
    kv = ctx.get_kv_self()
    assert kv.stats().used_cells == len(case.before) + len(case.embd)
    assert kv.seq_pos_max(2) == case.next_pos - 1
    assert kv.seq_rm(0, -1, -1)
    assert nmse(logits_of(ctx, case.rest(seq_id=2)), case.want_rest) < SAME


def saved_and_loaded(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    other = context(MODEL, n_ctx=512)
    other.state_seq_set_data(2, ctx.state_seq_get_data(0))
    return other, 2


def all_saved_and_loaded(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    other = context(MODEL)
    other.state_set_data(ctx.state_get_data())
    assert other.get_kv_self().state_hash() == ctx.get_kv_self().state_hash()
    return other, 0


def logged(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    file, container, rows = io.BytesIO(), io.BytesIO(), LogRows()
    kv = ctx.get_kv_self()
    sink = LogSink(file, rows, np.arange(kv.stats().n_tokens, dtype=np.int64), None)
    write_state(BlockWriter(container), ctx.state_info(), kv, 0, SavedTokens(np.zeros(0, np.int32)), sink)
    other, n_bytes = context(MODEL), len(container.getvalue())
    container.seek(0)
    source = LogSource(file, rows, Path("memory"))
    read_state(BlockReader(container, n_bytes), other.state_info(), other.get_kv_self(), 3, source=source)
    return other, 3


def forked(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    ctx.get_kv_self().seq_cp(0, 1, -1, -1)
    logits_of(ctx, Batch.from_tokens([5, 6, 7], None))
    ctx.get_kv_self().seq_rm(0, -1, -1)
    return ctx, 1


def cloned(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    twin = ctx.get_kv_self().clone()
    logits_of(ctx, Batch.from_tokens([5, 6, 7], None))
    old = ctx.set_kv_self(twin)
    assert old is not None
    old.close()
    return ctx, 0


def compacted(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    kv = ctx.get_kv_self()
    logits_of(ctx, Batch.from_tokens(list(range(90)), 0, 3))
    kv.seq_cp(0, 1, -1, -1)
    assert kv.seq_rm(3, 0, 80)
    kv.defrag()
    kv.update()
    return ctx, 1


def gone_back(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    logits_of(ctx, case.rest())
    assert ctx.get_kv_self().seq_rm(0, case.next_pos, -1)
    return ctx, 0


def stopped(ctx: engine.Context, case: Case) -> tuple[engine.Context, int]:
    before = ctx.get_kv_self().state_hash()
    more = case.axes + (case.next_pos - case.first)
    ctx.abort_flag[0] = 1
    assert ctx.decode(Batch.from_embeddings(case.embd, more)) is engine.DecodeStatus.ABORTED
    ctx.abort_flag[0] = 0
    assert ctx.get_kv_self().state_hash() == before
    return ctx, 0


WAYS = (saved_and_loaded, all_saved_and_loaded, logged, forked, cloned, compacted, gone_back, stopped)


@pytest.mark.parametrize("way", WAYS)
def test_a_text_goes_on_behind_an_image(way: Callable[[engine.Context, Case], tuple[engine.Context, int]]) -> None:
    case = load("qwen25vl")
    ctx, seq_id = way(with_image(case), case)
    kv = ctx.get_kv_self()
    assert kv.seq_pos_max(seq_id) == case.next_pos - 1
    with pytest.raises(UnsupportedCallError):
        kv.seq_add(seq_id, 0, -1, 1)
    rest = Batch.from_tokens(case.after, None, seq_id, "all")
    assert nmse(logits_of(ctx, rest), case.want_rest) < SAME


@pytest.mark.parametrize("way", WAYS[:5])
def test_an_image_goes_on_where_it_was_cut(way: Callable[[engine.Context, Case], tuple[engine.Context, int]]) -> None:
    case = load("qwen25vl")
    ctx = context(MODEL)
    logits_of(ctx, case.text(), Batch.from_embeddings(case.embd[:17], case.axes[:, :17]))
    ctx, seq_id = way(ctx, case)
    logits_of(ctx, Batch.from_embeddings(case.embd[17:], case.axes[:, 17:], seq_id))
    assert nmse(logits_of(ctx, case.rest(seq_id=seq_id)), case.want_rest) < SAME


def test_only_distances_count_on_every_axis() -> None:
    case = load("qwen2vl")
    ctx = context(MODEL)
    got = logits_of(
        ctx,
        Batch.from_tokens(case.before, 50, logits="all"),
        Batch.from_embeddings(case.embd, case.axes + 50, logits="all"),
        Batch.from_tokens(case.after, case.next_pos + 50, logits="all"),
    )
    assert nmse(got, case.want) < 1e-10


def test_an_image_is_removed_whole_and_can_be_seen_again() -> None:
    case = load("qwen25vl")
    ctx = with_image(case)
    kv = ctx.get_kv_self()
    n = kv.stats().n_tokens
    assert [kv.seq_pos_reentry(0, p) for p in (5, 6, 7, 11, 12, 40)] == [5, 6, 6, 6, 12, 12]
    assert kv.seq_rm(0, 7, -1)  # rows and columns beyond the image's time have no cells of their own
    assert kv.stats().n_tokens == n
    assert kv.seq_pos_max(0) == 11
    assert kv.seq_rm(0, 6, -1)
    assert kv.seq_pos_max(0) == 5
    assert kv.stats().n_tokens == len(case.before)
    assert kv.caps.shift
    assert nmse(logits_of(ctx, case.image(), case.rest()), case.want[len(case.before) :]) < SAME


def test_copied_ranges_have_the_images_in_them() -> None:
    case = load("qwen2vl")
    ctx = with_image(case)
    kv = ctx.get_kv_self()
    kv.seq_cp(0, 1, 0, 6)
    kv.seq_cp(0, 2, 6, -1)
    assert (kv.seq_pos_max(1), kv.seq_pos_max(2)) == (5, 8)
    kv.seq_keep(1)
    assert kv.caps.shift
    kv.seq_add(1, 0, -1, 3)
    assert kv.seq_pos_max(1) == 8


def test_positions_that_do_not_follow_are_refused() -> None:
    case = load("qwen2vl")
    ctx = with_image(case)
    before = ctx.get_kv_self().state_hash()
    one = case.embd[:1]
    for pos in (6, 7, 8, 10):
        with pytest.raises(BatchError, match=f"token 0 of sequence 0 has position {pos}, the sequence goes on at 9"):
            ctx.decode(Batch.from_tokens([1], pos))
    for axes in ([[6], [7], [8]], [[6], [6], [9]], [[5], [9], [9]], [[9], [8], [9]], [[10], [10], [11]]):
        with pytest.raises(BatchError, match=r"token 0 of sequence 0 has position .* a new image begins at 9"):
            ctx.decode(Batch.from_embeddings(one, axes))
    with pytest.raises(BatchError, match="token 1 of sequence 0"):
        ctx.decode(Batch.from_embeddings(case.embd[:2], [[9, 9], [10, 9], [9, 9]]))
    with pytest.raises(BatchError, match="token 0"):
        ctx.decode(Batch.from_embeddings(one, [[9], [-1], [9]]))
    with pytest.raises(BatchError, match="shape"):
        Batch.from_embeddings(one, [[9], [9]])
    with pytest.raises(BatchError, match="32-bit"):
        Batch.from_embeddings(one, [[2**40], [9], [9]])
    assert ctx.get_kv_self().state_hash() == before


def test_rows_and_columns_must_fit_the_context() -> None:
    case = load("qwen2vl")
    ctx = context(MODEL, n_ctx=8)
    ctx.decode(case.text())
    with pytest.raises(ContextFullError, match="9 positions needed, 8 available"):
        ctx.decode(case.image())
    assert ctx.get_kv_self().seq_pos_max(0) == 5


def test_the_frames_of_a_film_follow_each_other_in_time() -> None:
    case = load("qwen2vl")
    film = np.concatenate([case.axes, case.axes + np.array([[1], [0], [0]], np.int32)], axis=1)
    embd = np.concatenate([case.embd, case.embd[::-1]])
    whole, parts = context(MODEL), context(MODEL)
    for ctx in (whole, parts):
        ctx.decode(case.text())
    whole.decode(Batch.from_embeddings(embd, film))
    parts.decode(Batch.from_embeddings(embd[:6], film[:, :6]))
    parts.decode(Batch.from_embeddings(embd[6:], film[:, 6:]))
    assert nmse(logits_of(parts, case.rest()), logits_of(whole, case.rest())) < SAME
    kv = parts.get_kv_self()
    assert kv.seq_rm(0, 9, -1)
    assert kv.seq_rm(0, 7, 8)  # the second frame
    assert nmse(logits_of(parts, case.rest()), case.want_rest) < SAME


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3"])
def test_models_with_one_position_refuse_several(name: str) -> None:
    ctx = context(name)
    with pytest.raises(BatchError, match="a token of this model has one position"):
        ctx.decode(Batch.from_embeddings(np.zeros((2, 64), np.float32), [[0, 0], [0, 1], [0, 0]]))


def test_images_are_neither_shifted_nor_divided() -> None:
    case = load("qwen2vl")
    ctx = with_image(case)
    logits_of(ctx, case.rest())
    kv = ctx.get_kv_self()
    assert not kv.caps.shift
    assert not engine.kv_self_can_shift(ctx)
    before = kv.state_hash()
    for call, *arguments in ((kv.seq_add, 0, 3, -1, -2), (kv.seq_add, -1, 0, 7, 5), (kv.seq_div, 0, 6, 9, 2)):
        with pytest.raises(UnsupportedCallError, match="sequence 0 has one at position 6"):
            call(*arguments)
    assert kv.state_hash() == before


def test_what_stands_behind_an_image_is_shifted() -> None:
    case = load("qwen2vl")
    moved, still = with_image(case), with_image(case)
    for ctx in (moved, still):
        logits_of(ctx, case.rest())
    kv = moved.get_kv_self()
    kv.seq_add(0, case.next_pos, -1, 4)
    kv.update()
    assert kv.seq_pos_max(0) == still.get_kv_self().seq_pos_max(0) + 4
    kv.seq_add(0, case.next_pos, -1, -4)
    tokens = Batch.from_tokens([3, 1, 4], None, logits="all")
    assert nmse(logits_of(moved, tokens), logits_of(still, tokens)) < 1e-10


def test_fault_13865_a_text_without_images_is_shifted() -> None:
    tokens = [int(t) for t in np.random.default_rng(3).integers(0, 380, 40)]
    shifted, plain = context(MODEL), context(MODEL)
    for ctx in (shifted, plain):
        ctx.decode(Batch.from_tokens(tokens[:30]))
    kv = shifted.get_kv_self()
    assert kv.caps.shift
    kv.seq_add(0, 0, -1, 25)
    assert nmse(logits_of(shifted, Batch.from_tokens(tokens[30:], 55, logits="all")),
                logits_of(plain, Batch.from_tokens(tokens[30:], 30, logits="all"))) < 1e-10  # fmt: skip
    before = shifted.get_kv_self().seq_pos_max(0)
    assert kv.seq_rm(0, 30, 40)
    kv.seq_add(0, 40, -1, -10)
    assert kv.seq_pos_max(0) == before - 10
    one = Batch.from_tokens([7], None)
    lazily = kv.clone()
    kv.update()
    folded = logits_of(shifted, one)
    shifted.set_kv_self(lazily)
    assert nmse(logits_of(shifted, one), folded) < 1e-10


def test_damaged_images_change_nothing() -> None:
    case = load("qwen2vl")
    ctx = with_image(case)
    data = ctx.state_seq_get_data(0)
    record = np.array([6, 8, 7, 8], "<i4").tobytes()
    assert data.count(record) == 1
    other = context(MODEL)
    other.decode(case.text())
    before = other.get_kv_self().state_hash()
    for values in ((7, 8, 7, 8), (-1, 8, 7, 8), (6, 5, 7, 8), (6, 256, 7, 8), (6, 8, 9, 8), (6, 8, 7, -1)):
        bad = with_checksums_made_right(data.replace(record, np.array(values, "<i4").tobytes()))
        with pytest.raises(StateFileError, match="images"):
            other.state_seq_set_data(1, bad)
        assert other.get_kv_self().state_hash() == before
    other.state_seq_set_data(1, with_checksums_made_right(data))
    assert other.get_kv_self().seq_pos_max(1) == 8
