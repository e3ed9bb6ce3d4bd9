"""A session's file: what a save adds, what a cut or a flipped bit does, what is read back."""

from __future__ import annotations

import errno
import random
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

import engine.session_log
from engine.errors import StateFileError
from engine.memory import KVCache
from engine.session import Session
from engine.turns import Turn
from engine.types import QuantType
from tests.engine.test_session_models import run, small, turn

MODELS = ["llama", "gemma3", "lfm2", "mamba"]


def talk(session: Session, turns: list[Turn], n: int, first: int = 0) -> None:
    """Ask and answer n times, adding to the turns."""
    for i in range(first, first + n):
        turns.append(turn(f"q{i}", 12))
        turns.append(Turn(f"a{i}", run(session, turns, 8).tokens))


def cell_bytes(session: Session) -> int:
    memory = session.ctx.get_kv_self()
    assert isinstance(memory, KVCache)
    return sum(store.layout.cell_bytes for store in memory.stores)


def same(a: Session, b: Session) -> bool:
    """Whether two sessions hold the same bits."""
    return a.tokens == b.tokens and a.ctx.get_kv_self().state_hash() == b.ctx.get_kv_self().state_hash()


def test_each_cell_is_written_once(tmp_path: Path) -> None:
    session, turns, path = Session(small("llama", n_ctx=128)), [turn("s", 8, pinned=True)], tmp_path / "chat.kv"
    n_bytes = 0
    for i in range(12):
        session.ctx.perf_reset()
        talk(session, turns, 1, i)
        perf = session.ctx.perf_get_data()
        n_computed = perf.n_p_eval + perf.n_eval
        grown = session.save(path) - n_bytes
        n_bytes += grown
        head = 4 * len(session.tokens) + 20 * len(session.tokens) // 8 + 3000
        assert n_computed * cell_bytes(session) <= grown <= n_computed * cell_bytes(session) + head
    assert len(session.out_keys) > 4 and path.stat().st_size == n_bytes


@pytest.mark.parametrize("name", MODELS)
def test_a_file_that_grew_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.kv"
    first, turns = Session(small(name, n_ctx=96)), [turn("s", 8, pinned=True)]
    for i in range(9):
        talk(first, turns, 1, i)
        first.save(path)
        if i == 4:  # an edit: another branch from the second question on
            del turns[3:]
        if i % 3 == 2:
            again = Session(small(name, n_ctx=96))
            again.load(path)
            assert same(first, again)
            first = again
    talk(first, turns, 1, 20)
    first.save(path)
    again = Session(small(name, n_ctx=96))
    again.load(path)
    assert same(first, again)
    assert first.out_keys and again.out_keys == first.out_keys
    a, b = list(turns), list(turns)
    talk(first, a, 1, 30)
    talk(again, b, 1, 30)
    assert a == b


def test_a_cut_behind_the_last_save_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.kv"
    session, turns = Session(small("llama")), [turn("s", 8, pinned=True)]
    talk(session, turns, 2)
    end = session.save(path)
    good = path.read_bytes()
    old = Session(small("llama"))
    old.load(path)
    talk(session, turns, 1, 2)
    session.save(path)
    longer = path.read_bytes()
    again = Session(small("llama"))
    rng = random.Random(3)
    for cut in [end, end + 1, len(longer) - 1, *(rng.randrange(end, len(longer)) for _ in range(12))]:
        for tail in (longer[end:cut], bytes(cut - end), rng.randbytes(cut - end)):
            path.write_bytes(good + tail)  # the slots are those of the save before
            again.load(path)
            assert same(again, old)
    # What was cut off is written over by the next save.
    talk(again, turns[:3], 1, 9)
    again.save(path)
    old.load(path)
    assert same(again, old)


def test_a_flipped_bit_is_refused_wherever_it_counts(tmp_path: Path) -> None:
    path = tmp_path / "chat.kv"
    session, turns = Session(small("llama")), [turn("s", 8, pinned=True)]
    talk(session, turns, 1)
    session.save(path)
    talk(session, turns, 1, 1)
    session.save(path)
    good = path.read_bytes()
    again, rng = Session(small("llama")), random.Random(4)
    n_refused = 0
    for at in [*range(80), *(rng.randrange(len(good)) for _ in range(150))]:
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        try:
            again.load(path)
        except StateFileError:
            n_refused += 1
            assert again.tokens == [] and again.ctx.get_kv_self().seq_pos_max(0) == -1
        else:
            assert same(again, session)  # bytes of the head before, which nobody reads
    assert n_refused > 200


def test_a_full_disk_keeps_the_generation_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "chat.kv"
    session, turns = Session(small("llama")), [turn("s", 8, pinned=True)]
    talk(session, turns, 1)
    session.save(path)
    good, old = path.read_bytes(), list(session.tokens)
    talk(session, turns, 1, 1)

    def full(file: BinaryIO) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(engine.session_log, "_flush", full)
        with pytest.raises(OSError, match="No space"):
            session.save(path)
    assert path.read_bytes() == good
    again = Session(small("llama"))
    again.load(path)
    assert again.tokens == old
    session.save(path)
    again.load(path)
    assert same(again, session)


def test_a_file_that_somebody_replaced_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "chat.kv"
    session, turns = Session(small("llama")), [turn("s", 8, pinned=True)]
    for i, damage in enumerate((None, b"", b"something else", None)):
        talk(session, turns, 1, i)
        session.save(path)
        again = Session(small("llama"))
        again.load(path)
        assert same(again, session)
        if damage is None:
            path.unlink()
        else:
            path.write_bytes(damage)


def test_rows_that_nobody_has_are_dropped_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.session_log, "_SPARE_BYTES", 1000)
    path = tmp_path / "chat.kv"
    session, start = Session(small("llama")), [turn("s", 8, pinned=True)]
    sizes = []
    for i in range(12):
        talk(session, list(start), 1, 100 + i)  # another branch each time
        sizes.append(session.save(path))
    whole = Session(small("llama"))
    whole.load(path)
    assert same(whole, session)
    assert max(sizes) < 2 * sizes[0] + 30_000
    assert any(b < a for a, b in pairwise(sizes))


@pytest.mark.parametrize("name", ["gemma3", "llama-q4_0"])
def test_eight_bits_on_the_disk(name: str, tmp_path: Path) -> None:
    session, turns = Session(small(name)), [turn("s", 8, pinned=True)]
    talk(session, turns, 3)
    plain = session.save(tmp_path / "plain.kv")
    session.kv_type_on_disk = QuantType.Q8_0
    packed = session.save(tmp_path / "packed.kv")
    assert packed < 0.66 * plain
    again = Session(small(name))
    again.kv_type_on_disk = QuantType.Q8_0
    again.load(tmp_path / "packed.kv")
    assert again.tokens == session.tokens
    turns.append(turn("more", 5))
    a, b = run(session, turns, 1), run(again, turns, 1)
    assert a.stats.n_computed == b.stats.n_computed <= 6
    x, y = session.logits().astype(np.float64), again.logits().astype(np.float64)
    assert ((x - y) ** 2).mean() / (x**2).mean() < 1e-2
    grown = again.save(tmp_path / "packed.kv") - packed
    assert grown < 0.3 * packed
    # Another wish for the same file: it is written anew.
    again.load(tmp_path / "packed.kv")
    again.kv_type_on_disk = None
    again.log_at(tmp_path / "packed.kv")._kv_type = None
    assert again.save(tmp_path / "packed.kv") > 1.4 * packed
    session.load(tmp_path / "packed.kv")
    assert same(session, again)


def test_heads_too_small_for_eight_bits_are_kept_as_they_are(tmp_path: Path) -> None:
    session, turns = Session(small("llama")), [turn("s", 8, pinned=True)]
    session.kv_type_on_disk = QuantType.Q8_0
    talk(session, turns, 2)
    session.save(tmp_path / "chat.kv")
    again = Session(small("llama"))
    again.load(tmp_path / "chat.kv")
    assert same(again, session)
