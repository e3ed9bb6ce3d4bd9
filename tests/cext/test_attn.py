"""Attention of every instruction set against numpy in float64, and the same bits however the work is split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from cext.kernel_attn import Attention
from tests.cext.attn_oracle import Cache, F32Array, Sequence, attend, run_table
from tests.cext.kernel_support import ISAS, nmse

T = gguf.GGMLQuantizationType
TYPES = (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.IQ4_NL)
ROPE = {"kind": 2, "n_rot": 16, "freq_base": 10000.0}


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def params(n_head: int = 6, n_head_kv: int = 2, d: int = 32, type_: int = T.F32, **more: Any) -> dict[str, Any]:
    base = {"n_head": n_head, "n_head_kv": n_head_kv, "d_k": d, "d_v": d, "type_k": int(type_), "type_v": int(type_)}
    return {**base, "scale": d**-0.5, **more}


def queries(p: dict[str, Any], n: int, seed: int = 7) -> F32Array:
    return np.random.default_rng(seed).standard_normal((n, p["n_head"] * p["d_k"])).astype(np.float32) * 2


def one_segment(seq: Sequence, n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    runs, places = run_table(seq)
    return np.array([[0, n, *places[0]]], np.int64), runs


def check(
    isa: int,
    p: dict[str, Any],
    cells: Iterable[tuple[int, ...]],
    pos: list[int] | range,
    sinks: F32Array | None = None,
    seed: int = 0,
    rel_bias: F32Array | None = None,
) -> F32Array:
    """Fill a cache with `cells` (pos0, n, step, delta), attend from `pos`, compare; 1 plan == n plans, bit for bit."""
    cache = Cache(p, seed)
    layer = Attention(isa, cache.params, sinks, rel_bias=rel_bias)
    seq = Sequence()
    for cell in cells:
        cache.add(layer, seq, *cell)
    at = np.array(pos, np.int32)
    q = queries(p, len(at))
    segments, runs = one_segment(seq, len(at))
    out, _ = layer.run(q, at, segments, runs)
    assert nmse(out, attend(cache.params, seq, q, at, sinks, rel_bias)) < 1e-11
    for n_threads in (2, 5):
        again, _ = layer.run(q, at, segments, runs, n_threads=n_threads, is_reversed=True)
        np.testing.assert_array_equal(again, out)
    return out


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("n", (1, 9))
def test_cache_types(isa: int, type_: int, n: int) -> None:
    check(isa, params(d=64, type_=type_), [(0, 300)], range(300 - n, 300))


def test_mixed_types_and_head_sizes(isa: int) -> None:
    p = params(d=64, type_=T.Q8_0)
    for n in (1, 9):
        check(isa, {**p, "type_v": int(T.Q4_0)}, [(0, 70)], range(70 - n, 70))
        check(isa, {**p, "d_v": 32, "type_v": int(T.F16)}, [(0, 70)], range(70 - n, 70))


@pytest.mark.parametrize("d", (16, 24, 32, 64, 80, 96, 128, 192, 256, 576))
@pytest.mark.parametrize("n", (1, 6))
def test_head_sizes(isa: int, d: int, n: int) -> None:
    for type_ in (T.F32, T.F16):
        check(isa, params(3, 1, d, type_), [(0, 90)], range(90 - n, 90))


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("n", (1, 9))
def test_values_that_are_a_part_of_keys(isa: int, type_: int, n: int) -> None:
    for n_head_kv, rotated in ((1, 32), (2, 64)):
        p = params(8, n_head_kv, rotated + 96, type_, d_v=96, v_in_k=True)
        check(isa, p, [(0, 300)], range(300 - n, 300))


@pytest.mark.parametrize("heads", ((2, 2), (4, 2), (6, 2), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (20, 1)))
@pytest.mark.parametrize("n", (1, 7))
def test_groups(isa: int, heads: tuple[int, int], n: int) -> None:
    check(isa, params(*heads, d=32, type_=T.F16), [(0, 150)], range(150 - n, 150))


@pytest.mark.parametrize("n", (2, 3, 4, 5, 8, 17, 33, 70))
def test_many_tokens(isa: int, n: int) -> None:
    check(isa, params(d=32), [(0, 530)], range(530 - n, 530))
    check(isa, params(d=32), [(0, n)], range(n))


def test_one_and_many_token_kernels_agree(isa: int) -> None:
    p = params(d=64)
    cache = Cache(p)
    layer = Attention(isa, cache.params)
    seq = Sequence()
    cache.add(layer, seq, 0, 700)
    at = np.arange(600, 700, dtype=np.int32)
    q = queries(p, 100)
    segments, runs = one_segment(seq, 100)
    many, _ = layer.run(q, at, segments, runs)
    one = np.concatenate([layer.run(q[i : i + 1], at[i : i + 1], one_segment(seq, 1)[0], runs)[0] for i in range(100)])
    assert nmse(many, one) < 1e-11


HOLES = [(0, 40), (50, 30), (100, 20, 3), (300, 10), (700, 100), (1500, 1)]


@pytest.mark.parametrize("n", (1, 20))
def test_gaps_and_steps(isa: int, n: int) -> None:
    check(isa, params(), HOLES, range(1501 - n, 1501))


@pytest.mark.parametrize("n", (1, 12))
def test_shared_positions(isa: int, n: int) -> None:
    check(isa, params(), [(0, 20), (20, 600, 0), (21, 30), (50, 2), (51, 5), (56, 300)], range(356 - n, 356))


@pytest.mark.parametrize("n", (1, 20))
@pytest.mark.parametrize("kind", (1, 2))
def test_deltas(isa: int, n: int, kind: int) -> None:
    cells = [(0, 33), (33, 100, 1, -64), (133, 7, 1, 1000), (140, 300, 1, 5), (440, 40, 1, 0), (480, 20, 1, -64)]
    for type_ in (T.F32, T.Q8_0):
        check(isa, params(d=32, type_=type_, rope={**ROPE, "kind": kind}), cells, range(500 - n, 500))
    many = [(i * 10, 10, 1, 7 * i) for i in range(30)]
    check(isa, params(d=32, rope={**ROPE, "kind": kind}), many, range(300 - n, 300))


def test_delta_is_a_pure_rotation_under_yarn(isa: int) -> None:
    rope = {"kind": 2, "n_rot": 32, "freq_base": 10000.0, "freq_scale": 0.25, "ext_factor": 1.0, "attn_factor": 1.3}
    check(isa, params(d=32, rope=rope), [(0, 40), (40, 40, 1, -64)], range(75, 80))


@pytest.mark.parametrize("n", (1, 40))
@pytest.mark.parametrize("swa", ((1, 100), (1, 1), (1, 513), (2, 64), (2, 100), (3, 50)))
def test_sliding_windows(isa: int, swa: tuple[int, int], n: int) -> None:
    p = params(swa_kind=swa[0], n_swa=swa[1])
    check(isa, p, [(0, 600)], range(600 - n, 600))
    check(isa, {**p, "causal": False}, [(0, 300)], range(100, 100 + n))
    check(isa, p, HOLES, range(1501 - n, 1501))


def test_dropped_window_cells_change_no_bit(isa: int) -> None:
    p = params(swa_kind=1, n_swa=100)
    for n in (1, 30):
        cache = Cache(p)
        layer = Attention(isa, cache.params)
        seq = Sequence()
        cache.add(layer, seq, 0, 600)
        at = np.arange(600 - n, 600, dtype=np.int32)
        q = queries(p, n)
        segments, runs = one_segment(seq, n)
        want, _ = layer.run(q, at, segments, runs)
        keep = next(i for i, run in enumerate(seq.runs) if run[3] + run[2] > 600 - n - 99)
        segments[0, 2:] = keep, len(seq.runs) - keep
        np.testing.assert_array_equal(layer.run(q, at, segments, runs)[0], want)


@pytest.mark.parametrize("n", (1, 25))
def test_bias_cap_and_sinks(isa: int, n: int) -> None:
    pos = range(290 - n, 290)
    sinks = np.linspace(-2, 6, 6).astype(np.float32)
    check(isa, params(softcap=3.0), [(0, 300)], pos)
    check(isa, params(max_alibi_bias=8.0), [(0, 300)], pos)
    check(isa, params(), [(0, 300)], pos, sinks)
    check(isa, params(12, 12, 16, max_alibi_bias=8.0, softcap=5.0, swa_kind=1, n_swa=77), HOLES, range(800 - n, 800))
    check(isa, params(causal=False), [(0, 290)], pos)


@pytest.mark.parametrize("n", (1, 3, 20))
@pytest.mark.parametrize("causal", (True, False))
def test_relative_bias(isa: int, n: int, causal: bool) -> None:
    """By distance up to 40 to both sides, and one value beyond; over holes and chunks, with other scores' parts."""
    bias = np.random.default_rng(4).standard_normal((6, 81)).astype(np.float32) * 3
    check(isa, params(causal=causal, scale=1.0), [(0, 300)], range(200, 200 + n), rel_bias=bias)
    sinks = np.linspace(-2, 2, 6).astype(np.float32)
    check(isa, params(causal=causal, softcap=5.0), HOLES, range(760 - n, 760), sinks, rel_bias=bias)
    check(isa, params(6, 1, 24, causal=causal), [(0, 70)], range(70 - n, 70), rel_bias=bias[:, :1].copy())


def test_rows_that_see_nothing_are_zero(isa: int) -> None:
    for n in (1, 30):
        out = check(isa, params(), [(100, 50)], range(n), np.zeros(6, np.float32))
        assert not out.any()
        assert not check(isa, params(), [], range(n)).any()
    check(isa, params(), [(100, 50)], range(90, 120))


def test_sequences_of_a_batch_do_not_meet(isa: int) -> None:
    p = params(d=64, type_=T.F16)
    cache = Cache(p)
    layer = Attention(isa, cache.params)
    seqs = [Sequence() for _ in range(5)]
    sizes, n_tokens = (300, 10, 64, 900, 1), (1, 10, 7, 40, 1)
    for seq, size in zip(seqs, sizes, strict=True):
        cache.add(layer, seq, 0, size)
    runs, places = run_table(*seqs)
    pos = np.concatenate([np.arange(s - n, s, dtype=np.int32) for s, n in zip(sizes, n_tokens, strict=True)])
    q = queries(p, len(pos))
    t0 = np.cumsum((0, *n_tokens))
    table = np.array([[t0[i], n_tokens[i], *places[i]] for i in range(5)], np.int64)
    for n_threads in (1, 4):
        out, _ = layer.run(q, pos, table, runs, n_threads=n_threads)
        for i, seq in enumerate(seqs):
            at = slice(t0[i], t0[i + 1])
            assert nmse(out[at], attend(cache.params, seq, q[at], pos[at])) < 1e-11
            alone, _ = layer.run(q[at].copy(), pos[at].copy(), table[i : i + 1] - [t0[i], 0, 0, 0], runs)
            np.testing.assert_array_equal(out[at], alone)


@pytest.mark.parametrize("type_", (T.F32, T.F16, T.BF16))
def test_nan_in_cells_that_a_row_does_not_see(isa: int, type_: int) -> None:
    p = params(d=32, type_=type_)
    for n in (1, 30):
        cache = Cache(p)
        layer = Attention(isa, cache.params)
        seq = Sequence()
        cache.add(layer, seq, 0, 200)
        address, first, count = seq.runs[-1][:3]
        page = next(i for i in range(len(cache.pages)) if cache.pages[i].ctypes.data == address)
        for head in range(2):
            cache.row(True, page, head, first + count - 1)[:] = 0xFF
            cache.row(False, page, head, first + count - 1)[:] = 0xFF
        at = np.arange(200 - n, 200, dtype=np.int32)
        q = queries(p, n)
        segments, runs = one_segment(seq, n)
        out, _ = layer.run(q, at, segments, runs)
        want = attend(cache.params, seq, q, at)
        assert np.isnan(out[-1]).all()
        assert n == 1 or nmse(out[:-1], want[:-1]) < 1e-11
        hidden, _ = layer.run(q, at - 1, segments, runs)
        assert nmse(hidden, attend(cache.params, seq, q, at - 1)) < 1e-11


def test_page_placement_changes_no_bit(isa: int) -> None:
    p = params(d=64, type_=T.F16, rope=ROPE)
    for n in (1, 30):
        outs = []
        k = np.random.default_rng(1).standard_normal((500, 128)).astype(np.float32)
        for seed in range(3):
            cache = Cache(p, seed)
            layer = Attention(isa, cache.params)
            seq = Sequence()
            cache.add(layer, seq, 0, 300, 1, 11)
            cache.add(layer, seq, 300, 200)
            addresses = np.concatenate([np.full(run[2], run[0], np.uint64) for run in seq.runs])
            cells = np.concatenate([np.arange(run[1], run[1] + run[2], dtype=np.int32) for run in seq.runs])
            layer.store(k, k[::-1].copy(), addresses, cells)
            segments, runs = one_segment(seq, n)
            outs.append(layer.run(queries(p, n), np.arange(500 - n, 500, dtype=np.int32), segments, runs)[0])
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], outs[2])


def test_work_is_split_where_there_is_some(isa: int) -> None:
    p = params(3, 1, 64, T.F16)
    cache = Cache(p, n_pages=100)
    layer = Attention(isa, cache.params)
    seq = Sequence()
    cache.add(layer, seq, 0, 3000)
    segments, runs = one_segment(seq, 1)
    at = np.array([2999], np.int32)
    assert layer.run(queries(p, 1), at, segments, runs, n_threads=1)[1] == (1, 0)
    n_tasks, n_merge = layer.run(queries(p, 1), at, segments, runs, n_threads=2)[1]
    assert n_tasks >= 6 and n_merge == 1


def test_refusals(isa: int) -> None:
    for bad in (
        params(5, 2),
        params(d=48, type_=T.Q8_0),
        params(type_=T.Q4_K),
        params(swa_kind=1),
        params(rope={"kind": 1, "n_rot": 64}),
        params(rope={"kind": 7, "n_rot": 16}),
    ):
        with pytest.raises(ValueError, match="refuse"):
            Attention(isa, {**bad, "k_off": 0, "v_off": 0})
