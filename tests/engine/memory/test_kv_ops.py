"""Sequence operations at their edges, and what shifting must cost and keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import BatchError, ContextFullError, ParamError, UnsupportedCallError
from engine.memory import KVCache, LayerKV, MemoryParams, MemorySpec, NumpyRopeShift, RopeLayer, create_cache
from engine.memory.kv import DELTAS_MAX
from engine.types import F32Array, F64Array, QuantType
from tests.engine.memory.helpers import N_SWA, decode, make_cache, read, true_k, ubatch, ubatch_of, write
from tests.engine.memory.model import Model, check


def filled(kind: str, n: int, **params: Any) -> tuple[KVCache, Model]:
    """A cache with n tokens in sequence 0."""
    cache, model = make_cache(kind, **params), Model()
    decode(cache, [(range(n), (0,), range(n))])
    model.add_tokens((0,), list(range(n)), list(range(n)))
    return cache, model


def test_ranges_mean_what_they_say() -> None:
    cache, model = filled("kv", 100)
    assert cache.seq_pos_min(3) == cache.seq_pos_max(3) == -1
    assert cache.seq_rm(3, -1, -1) and cache.seq_rm(0, 60, 50) and cache.seq_rm(0, 200, -1)
    check(cache, model)
    assert cache.seq_rm(0, -5, 10) and cache.seq_rm(0, 90, -7)
    assert (cache.seq_pos_min(0), cache.seq_pos_max(0)) == (10, 89)


def test_negative_sequence_means_any() -> None:
    """llama.cpp #13983, #15104."""
    cache, _ = filled("kv", 70)
    cache.seq_cp(0, 2, 0, 40)
    assert cache.seq_rm(-1, 30, -1)
    assert [cache.seq_pos_max(s) for s in range(4)] == [29, -1, 29, -1]
    assert cache.seq_rm(-1, -1, -1) and cache.seq_ids() == () and cache.used_cells == 0


@pytest.mark.parametrize("seq_id", [-1, 4, 10**9])
def test_sequences_out_of_range_are_refused(seq_id: int) -> None:
    """llama.cpp #14847."""
    cache, model = filled("kv", 10)
    with pytest.raises(ParamError):
        cache.seq_cp(0, seq_id, 0, -1)
    with pytest.raises(ParamError):
        cache.seq_keep(seq_id)
    with pytest.raises(ParamError):
        cache.seq_pos_max(seq_id)
    tx = cache.begin()
    with pytest.raises(BatchError):
        tx.place(ubatch([10], (seq_id,)))
    tx.rollback()
    check(cache, model)


def test_seq_keep_drops_all_others() -> None:
    cache, model = filled("kv", 100)
    for s in (1, 2, 3):
        cache.seq_cp(0, s, 0, -1)
        model.cp(0, s, 0, -1)
    assert (cache.n_tokens, cache.used_cells) == (400, 100)
    cache.seq_keep(2)
    model.keep(2)
    check(cache, model)


def test_shift_moves_no_other_sequence() -> None:
    cache, model = filled("kv", 100)
    cache.seq_cp(0, 1, 0, -1)
    model.cp(0, 1, 0, -1)
    cache.seq_add(0, 50, -1, 7)
    model.add(0, 50, -1, 7)
    check(cache, model)


def test_cells_shifted_below_zero_are_freed() -> None:
    cache, model = filled("kv", 100)
    cache.seq_add(0, 0, 50, -20)
    model.add(0, 0, 50, -20)
    check(cache, model)
    assert cache.used_cells == 80


def test_shift_there_and_back_is_exact() -> None:
    cache, _ = filled("kv", 300)
    before = cache.state_hash()
    cache.seq_add(0, 0, -1, 1000)
    assert cache.seq_pos_min(0) == 1000
    cache.seq_add(0, 0, -1, -1000)
    assert cache.state_hash() == before


def test_shift_too_far_is_refused() -> None:
    cache, model = filled("kv", 10)
    for delta in (2**31, 2**30, -(2**40)):
        with pytest.raises(ParamError):
            cache.seq_add(0, 0, -1, delta)
    check(cache, model)


def test_shift_where_positions_cannot_move() -> None:
    """Refused when asked, not at the next decode. llama.cpp #19915."""
    spec = MemorySpec("kv", (LayerKV(0, 1, 8, 8),), "test", can_shift=False)
    cache = create_cache(spec, MemoryParams(n_ctx=100))
    for call in (cache.seq_add, cache.seq_div):
        with pytest.raises(UnsupportedCallError):
            call(0, 0, -1, 2)
    assert not cache.can_shift and not cache.caps.shift


def test_repeated_context_shift_keeps_two_deltas() -> None:
    """llama.cpp #4097: K is never rotated, however often a chat shifts."""
    cache, model = make_cache("kv", n_ctx=128), Model()
    n_keep, content = 10, 0
    for _ in range(12):
        while (pos := model.pos_max(0) + 1) < 128:
            n = min(17, 128 - pos)
            where, contents = list(range(pos, pos + n)), list(range(content, content + n))
            decode(cache, [(where, (0,), contents)])
            model.add_tokens((0,), where, contents)
            content += n
        discard = (128 - n_keep) // 2
        assert cache.seq_rm(0, n_keep, n_keep + discard)
        cache.seq_add(0, n_keep + discard, 128, -discard)
        model.rm(0, n_keep, n_keep + discard)
        model.add(0, n_keep + discard, -1, -discard)
        assert len(cache.tables(0)[0].deltas()) == 1
    assert cache.tables(0)[0].frame == 12 * discard
    check(cache, model)


def test_many_deltas_are_folded_before_the_next_decode() -> None:
    cache, model = filled("kv", 200)
    for i in range(DELTAS_MAX + 2):
        cache.seq_add(0, 190 - 20 * i, -1, 3)
        model.add(0, 190 - 20 * i, -1, 3)
    assert len(cache.tables(0)[0].deltas()) > DELTAS_MAX
    cache.prepare(1)
    assert len(cache.tables(0)[0].deltas()) == 0
    check(cache, model)


@pytest.mark.parametrize("kind", ["kv", "iswa"])
def test_folding_without_room_changes_nothing(kind: str) -> None:
    page_bytes = sum(store.pages.pool.stride_bytes for store in make_cache(kind).stores)
    cache, model = filled(kind, 190, kv_bytes_max=3 * page_bytes, swa_margin=None)
    for i in range(DELTAS_MAX + 2):
        cache.seq_add(0, 180 - 20 * i, -1, 3)
        model.add(0, 180 - 20 * i, -1, 3)
    before = cache.state_hash()
    with pytest.raises(ContextFullError):
        cache.update()
    with pytest.raises(ContextFullError):
        cache.seq_div(0, 0, -1, 2)
    assert cache.state_hash() == before
    if kind == "kv":  # the other lets go of what lies behind its window
        cache.prepare(1)
        assert cache.state_hash() == before
    check(cache, model)


def test_quantised_k_is_never_quantised_again_by_a_shift() -> None:
    """llama.cpp #5652."""
    layers = (LayerKV(0, 2, 32, 32),)
    rope = NumpyRopeShift({0: RopeLayer("neox", 32)})
    cache = make_cache("kv", layers, rope, type_k=QuantType.Q4_0, type_v=QuantType.Q8_0)
    decode(cache, [(range(150), (0,), range(150))], rope=rope)
    used = cache.stores[0].pages.used()
    pages = {p: cache.stores[0].pages.pool.view(p).tobytes() for p in used}
    for i in range(DELTAS_MAX + 3):
        cache.seq_add(0, 140 - 15 * i, -1, 2)
    cache.prepare(1)
    cache.update()
    assert {p: cache.stores[0].pages.pool.view(p).tobytes() for p in cache.stores[0].pages.used()} == pages


SCALINGS = {
    "plain": RopeLayer("neox", 32),
    "norm": RopeLayer("norm", 32),
    "partial": RopeLayer("neox", 16, freq_base=5e5),
    "latent": RopeLayer("norm", 8, offset=24),
    "linear": RopeLayer("neox", 32, freq_scale=0.25),
    "llama3": RopeLayer("norm", 32, freq_factors=np.linspace(1, 8, 16).astype(np.float32)),
    "yarn": RopeLayer("neox", 32, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=64),
}


def ggml_rotation(layer: RopeLayer, k: F32Array, pos: int) -> F64Array:
    """f64 of one row d_k, written after ggml_rope_ext, dimension by dimension, magnitude 1."""
    out = k.astype(np.float64).copy()
    for i in range(layer.n_rot // 2):
        factor = 1.0 if layer.freq_factors is None else float(layer.freq_factors[i])
        free = pos * layer.freq_base ** (-2.0 * i / layer.n_rot) / factor
        theta = layer.freq_scale * free
        if layer.ext_factor:
            low, high = (
                layer.n_rot * np.log(layer.n_ctx_orig / (beta * 2 * np.pi)) / (2 * np.log(layer.freq_base))
                for beta in (layer.beta_fast, layer.beta_slow)
            )
            low, high = max(0.0, np.floor(low)), min(layer.n_rot - 1, np.ceil(high))
            ramp = (1 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))) * layer.ext_factor
            theta = theta * (1 - ramp) + free * ramp
        a = layer.offset + (2 * i if layer.kind == "norm" else i)
        b = layer.offset + (2 * i + 1 if layer.kind == "norm" else i + layer.n_rot // 2)
        x, y = out[a], out[b]
        out[a], out[b] = x * np.cos(theta) - y * np.sin(theta), x * np.sin(theta) + y * np.cos(theta)
    return out


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize(("quant", "tolerance"), [(QuantType.F32, 1e-5), (QuantType.F16, 4e-3), (QuantType.BF16, 3e-2)])
def test_folded_k_is_k_made_anew(scaling: str, quant: QuantType, tolerance: float) -> None:
    """K encoded at p and shifted to q is K encoded at q; llama.cpp #4889 (n_rot), and YaRN without its magnitude."""
    layer, rope = LayerKV(0, 2, 32, 32), NumpyRopeShift({0: SCALINGS[scaling]})
    cache = make_cache("kv", (layer,), rope, type_k=quant)
    decode(cache, [(range(100), (0,), range(100))], rope=rope)
    cache.seq_rm(0, 20, 60)
    cache.seq_add(0, 60, -1, -40)
    cache.seq_add(0, 30, -1, 5)
    cache.update()
    assert not len(cache.tables(0)[0].deltas())
    pos, layers = read(cache.stores[0], 0)
    frame = cache.tables(0)[0].frame
    contents = [*range(20), *range(60, 100)]
    bare = true_k(layer, contents, pos, NumpyRopeShift({}))
    wanted = np.array(
        [[ggml_rotation(SCALINGS[scaling], h, int(p) + frame) for h in row] for row, p in zip(bare, pos, strict=True)]
    )
    assert np.abs(layers[0][0] - wanted).max() < tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("quant", [QuantType.Q8_0, QuantType.Q5_1, QuantType.IQ4_NL])
def test_division_of_quantised_k(quant: QuantType) -> None:
    layer, rope = LayerKV(0, 1, 32, 32), NumpyRopeShift({0: RopeLayer("neox", 32)})
    cache = make_cache("kv", (layer,), rope, type_k=quant, type_v=QuantType.F16)
    decode(cache, [(range(100), (0,), range(100))], rope=rope)
    cache.seq_div(0, 0, -1, 3)
    pos, layers = read(cache.stores[0], 0)
    assert pos.tolist() == [p // 3 for p in range(100)]
    wanted = true_k(layer, range(100), pos + np.int32(cache.tables(0)[0].frame), rope)
    error = np.sqrt(np.mean((layers[0][0] - wanted) ** 2) / np.mean(wanted**2))
    assert error < {QuantType.Q8_0: 0.01, QuantType.Q5_1: 0.06, QuantType.IQ4_NL: 0.14}[quant]


def test_self_extend_goes_beyond_n_ctx() -> None:
    """n_ctx counts positions, not cells: seq_div makes room. llama.cpp #9171, #8570."""
    cache, model = make_cache("kv", n_ctx=64), Model()
    content = 0
    for _ in range(6):
        begin = model.pos_max(0) + 1
        pos, contents = list(range(begin, 64)), list(range(content, content + 64 - begin))
        decode(cache, [(pos, (0,), contents)])
        model.add_tokens((0,), pos, contents)
        content += len(pos)
        cache.seq_div(0, 0, -1, 4)
        model.div(0, 0, -1, 4)
        check(cache, model)
    assert cache.n_tokens > 2 * 64
    with pytest.raises(ContextFullError):
        decode(cache, [(range(cache.seq_pos_max(0) + 1, 65), (0,), range(65))])
    check(cache, model)


def test_fragmented_cache_has_room_while_cells_are_free() -> None:
    """llama.cpp #14097, #4185, #17527."""
    page = make_cache("kv").stores[0].pages.pool.stride_bytes
    cache, model = filled("kv", 640, kv_bytes_max=10 * page)
    for p in range(0, 640, 2):
        cache.seq_rm(0, p, p + 1)
        model.rm(0, p, p + 1)
    decode(cache, [(range(320), (1,), range(1000, 1320))])
    model.add_tokens((1,), list(range(320)), list(range(1000, 1320)))
    check(cache, model)
    before = cache.state_hash()
    with pytest.raises(ContextFullError):
        decode(cache, [([320], (1,), [5])])
    assert cache.state_hash() == before
    assert cache.seq_rm(1, 0, -1)
    model.rm(1, 0, -1)
    check(cache, model)


def test_compacting_needs_one_free_page() -> None:
    """By sequence and position, through one page at a time. llama.cpp #9314, #10873, #13497, #14059."""
    page = make_cache("kv").stores[0].pages.pool.stride_bytes
    cache, model = filled("kv", 640, kv_bytes_max=11 * page)
    for p in range(0, 640, 2):
        cache.seq_rm(0, p, p + 1)
        model.rm(0, p, p + 1)
    before = cache.state_hash()
    cache.defrag()
    assert cache.update() and not cache.update()
    assert cache.stats().n_pages == 5 and cache.state_hash() == before
    cells = cache.tables(0)[0].cells()
    assert cells.cell.tolist() == [i % 64 for i in range(320)]
    check(cache, model)


def test_clone_writes_only_what_it_touches() -> None:
    cache, model = filled("kv", 1000)
    pool = cache.stores[0].pages.pool
    n_pages = pool.n_used
    twin = cache.clone()
    assert pool.n_used == n_pages
    for side in (cache, twin):
        decode(side, [([1000], (0,), [7])])
    assert pool.n_used == n_pages + 2
    model.add_tokens((0,), [1000], [7])
    check(cache, model)
    check(twin, model)
    twin.close()
    twin.close()
    assert pool.n_used == n_pages + 1


def test_sequences_in_one_ubatch_see_their_own_runs() -> None:
    cache = make_cache("kv")
    tx = cache.begin()
    where = tx.place(ubatch_of([([0, 1, 2], (1, 3)), ([0, 1], (2,)), ([3], (3,))]))
    (kv,) = where.kv
    assert kv.segments["t0"].tolist() == [0, 3, 5] and kv.segments["n_tokens"].tolist() == [3, 2, 1]
    counts = [
        int(kv.runs["count"][run0 : run0 + n].sum())
        for run0, n in zip(kv.segments["run0"], kv.segments["n_runs"], strict=True)
    ]
    assert counts == [3, 2, 4]
    assert len({(int(p), int(c)) for p, c in zip(kv.pages, kv.cells, strict=True)}) == 6
    assert kv.pages.dtype == np.uint64 and kv.cells.dtype == np.int32 and kv.runs.dtype.itemsize == 32
    tx.commit()
    assert [cache.seq_pos_max(s) for s in range(4)] == [-1, 2, 1, 3] and cache.used_cells == 6


def test_later_placements_leave_earlier_ones_alone() -> None:
    cache = make_cache("kv")
    tx = cache.begin()
    first = tx.place(ubatch([0, 1]))
    tx.place(ubatch([2, 3]))
    assert first.kv[0].runs["count"].tolist() == [2]
    tx.rollback()


def test_operations_wait_for_the_transaction() -> None:
    cache, _ = filled("kv", 5)
    tx = cache.begin()
    for call in (cache.begin, cache.clear, cache.clone, cache.update, lambda: cache.seq_rm(0, 0, -1)):
        with pytest.raises(RuntimeError):
            call()
    tx.rollback()


def test_tokens_may_fill_a_hole() -> None:
    cache, model = filled("kv", 100)
    cache.seq_rm(0, 40, 60)
    model.rm(0, 40, 60)
    before = cache.state_hash()
    tx = cache.begin()
    tx.place(ubatch(range(40, 50)))
    tx.place(ubatch(range(100, 105)))
    tx.place(ubatch(range(50, 55)))
    tx.rollback()
    assert cache.state_hash() == before
    decode(cache, [(range(40, 50), (0,), range(500, 510))])
    model.add_tokens((0,), list(range(40, 50)), list(range(500, 510)))
    check(cache, model)


def test_positions_out_of_order_or_range() -> None:
    cache, model = filled("kv", 10)
    for pos in ([11, 10], [-1]):
        tx = cache.begin()
        with pytest.raises(BatchError):
            tx.place(ubatch(pos))
        tx.rollback()
    with pytest.raises(ContextFullError):
        decode(cache, [([4096], (0,), [1])])
    check(cache, model)


# -- sliding windows


def test_window_lets_go_of_old_pages() -> None:
    cache, model = make_cache("iswa"), Model()
    for begin in range(0, 1000, 50):
        pos = list(range(begin, begin + 50))
        decode(cache, [(pos, (0,), pos)])
        model.add_tokens((0,), pos, pos)
    base, swa = cache.tables(0)
    assert base.n_cells == 1000 and swa.n_cells < N_SWA + 30 + 64 + 50
    assert cache.seq_pos_min(0) == swa.pos_min() > 0 and cache.seq_pos_max(0) == 999
    check(cache, model)


def test_stepping_back_is_refused_where_cells_left_the_window() -> None:
    """llama.cpp #13963, #13970, #13747: never silently."""
    cache, model = filled("iswa", 1000)
    reentry = next(p for p in range(1000) if cache.seq_pos_reentry(0, p) == p > 0)
    assert (
        900 < reentry < 1000 and cache.seq_pos_reentry(0, reentry - 1) == 0 and cache.seq_pos_reentry(0, 5000) == 1000
    )
    before = cache.state_hash()
    assert not cache.seq_rm(0, reentry - 1, -1) and not cache.seq_rm(-1, 10, -1)
    assert cache.state_hash() == before
    assert cache.seq_rm(0, reentry, -1)
    model.rm(0, reentry, -1)
    check(cache, model)
    assert cache.seq_rm(0, 0, -1) and cache.seq_ids() == ()  # a whole removal never fails


def test_context_shift_with_a_window() -> None:
    """ik_llama.cpp #2459: shifts while the cells that the next token sees are there."""
    cache, model = filled("iswa", 1000)
    assert cache.seq_rm(0, 10, 505)
    cache.seq_add(0, 505, -1, -495)
    model.rm(0, 10, 505)
    model.add(0, 505, -1, -495)
    check(cache, model)
    before = cache.state_hash()
    assert not cache.seq_rm(0, 100, 490)  # fewer later cells than the window has
    assert cache.state_hash() == before


def test_full_window_cache_steps_back_anywhere() -> None:
    """llama.cpp #21468, #22288."""
    cache, model = filled("iswa", 1000, swa_full=True)
    assert cache.seq_pos_reentry(0, 77) == 77 and cache.seq_pos_min(0) == 0
    assert cache.seq_rm(0, 77, -1)
    model.rm(0, 77, -1)
    check(cache, model)


def test_margin_is_given_up_when_room_is_missing() -> None:
    probe = make_cache("iswa")
    pages = [store.pages.pool.stride_bytes for store in probe.stores]
    cache = make_cache("iswa", swa_margin=None, kv_bytes_max=8 * pages[0] + 7 * pages[1])
    for begin in range(0, 500, 10):
        decode(cache, [(range(begin, begin + 10), (0,), range(begin, begin + 10))])
    assert cache.tables(0)[0].n_cells == 500 > cache.tables(0)[1].n_cells


def test_copy_of_what_left_the_window_is_refused() -> None:
    cache, model = filled("iswa", 1000)
    with pytest.raises(ParamError):
        cache.seq_cp(0, 1, 0, 500)
    check(cache, model)
    cache.seq_cp(0, 1, 0, -1)
    model.cp(0, 1, 0, -1)
    check(cache, model)


def test_cell_content_survives_reuse_of_its_page() -> None:
    """Pages are zeroed when handed out: a NaN of an old owner never meets a mask. llama.cpp #27068."""
    cache, _ = filled("kv", 64)
    store = cache.stores[0]
    (page_id,) = store.pages.used()
    store.pages.pool.view(page_id)[:] = 0xFF
    cache.clear()
    tx = cache.begin()
    where = tx.place(ubatch([0]))
    (page_id,) = store.pages.used()
    assert not store.pages.pool.view(page_id).any()
    write(store.layout, where.kv[0].pages, where.kv[0].cells, [0], where.rope_pos)
    tx.commit()


def test_cache_types_refuse_heads_they_do_not_fit() -> None:
    for quant in (QuantType.Q8_0, QuantType.Q4_1, QuantType.IQ4_NL):
        with pytest.raises(ParamError, match=f"{quant.name.lower()}.*8 is not a multiple of 32"):
            make_cache("kv", type_k=quant)
    with pytest.raises(ParamError, match="q6_k"):
        make_cache("kv", type_v=QuantType.Q6_K)
