"""Saved state: there and back, and nothing but its own errors for anything else."""

from __future__ import annotations

import os
import random
import struct
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import ContextFullError, StateFileError, StateMismatchError, StateVersionError
from engine.io import STATE_VERSION, BlockReader, atomic_write
from engine.memory import KVCache
from engine.state import (
    SavedTokens,
    StateInfo,
    state_from_bytes,
    state_from_file,
    state_size,
    state_to_bytes,
    state_to_file,
)
from engine.types import QuantType
from tests.engine.memory.helpers import decode, make_cache
from tests.engine.memory.model import Model, check

INFO = StateInfo("a model", "rope=plain")
BESIDE = SavedTokens(np.arange(7, dtype=np.int32), b"sampler")
KINDS = ("kv", "iswa", "chunked")


def shifted(kind: str, n: int = 500, **params: Any) -> tuple[KVCache, Model]:
    """A cache with a shifted sequence, a fork of it and a short one."""
    cache, model = make_cache(kind, **params), Model()
    decode(cache, [(range(n), (0,), range(n))])
    model.add_tokens((0,), list(range(n)), list(range(n)))
    assert cache.seq_rm(0, 5, n // 2)
    cache.seq_add(0, n // 2, -1, 5 - n // 2)
    model.rm(0, 5, n // 2)
    model.add(0, n // 2, -1, 5 - n // 2)
    cache.seq_cp(0, 2, 0, -1)
    model.cp(0, 2, 0, -1)
    for seq_id, m in ((2, 3), (3, 70)):
        begin = model.pos_max(seq_id) + 1
        pos = list(range(begin, begin + m))
        decode(cache, [(pos, (seq_id,), [9000 + p for p in pos])])
        model.add_tokens((seq_id,), pos, [9000 + p for p in pos])
    return cache, model


@pytest.mark.parametrize("kind", KINDS)
def test_all_sequences_there_and_back(kind: str) -> None:
    cache, model = shifted(kind)
    data = state_to_bytes(INFO, cache, None, BESIDE)
    assert state_size(INFO, cache, None, BESIDE) == len(data)
    other = make_cache(kind, n_ctx=1000)
    decode(other, [(range(30), (1,), range(30))])
    beside = state_from_bytes(data, INFO, other, None)
    assert beside.tokens.tolist() == list(range(7)) and beside.sampler == b"sampler"
    assert other.state_hash() == cache.state_hash()
    check(other, model)
    assert other.used_cells == cache.used_cells  # what sequences share is stored once
    decode(other, [([model.pos_max(0) + 1], (0,), [4])])  # and goes on


@pytest.mark.parametrize("kind", KINDS)
def test_one_sequence_into_another_of_a_fragmented_cache(kind: str) -> None:
    """llama.cpp #17527."""
    cache, model = shifted(kind)
    data = state_to_bytes(INFO, cache, 2)
    pages = [store.pages.pool.stride_bytes for store in cache.stores]
    other = make_cache(kind, kv_bytes_max=16 * sum(pages), swa_full=True)
    there = Model()
    decode(other, [(range(900), (0,), range(900))])
    there.add_tokens((0,), list(range(900)), list(range(900)))
    for p in range(0, 880, 2):
        assert other.seq_rm(0, p, p + 1)
        there.rm(0, p, p + 1)
    state_from_bytes(data, INFO, other, 1)
    there.seqs[1] = model.seq(2)
    check(other, there)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_sequence(kind: str) -> None:
    """llama.cpp #14434."""
    cache, model = shifted(kind)
    data = state_to_bytes(INFO, cache, 1)
    state_from_bytes(data, INFO, cache, 2)
    model.rm(2, 0, -1)
    check(cache, model)
    state_from_bytes(state_to_bytes(INFO, make_cache(kind), None), INFO, cache, None)
    assert cache.seq_ids() == () and cache.used_cells == 0


@pytest.mark.parametrize("quant", [QuantType.F16, QuantType.BF16])
def test_half_float_caches(quant: QuantType) -> None:
    cache, _ = shifted("kv", type_k=quant, type_v=QuantType.F16)
    other = make_cache("kv", type_k=quant, type_v=QuantType.F16)
    state_from_bytes(state_to_bytes(INFO, cache, None), INFO, other, None)
    assert other.state_hash() == cache.state_hash()


def test_what_does_not_fit_is_refused() -> None:
    cache, _ = shifted("kv")
    one, full = state_to_bytes(INFO, cache, 0), state_to_bytes(INFO, cache, None)
    target = make_cache("kv", n_ctx=200)
    before = target.state_hash()
    for data, info, into, seq_id in (
        (one, StateInfo("another model", INFO.params), cache, 1),
        (one, StateInfo(INFO.model, "rope=yarn"), cache, 1),
        (one, INFO, make_cache("iswa"), 1),
        (one, INFO, make_cache("kv", type_v=QuantType.F16), 1),
        (one, INFO, target, 0),  # positions beyond its n_ctx
    ):
        with pytest.raises(StateMismatchError):
            state_from_bytes(data, info, into, seq_id)
    with pytest.raises(StateFileError, match="not one"):
        state_from_bytes(full, INFO, cache, 0)
    with pytest.raises(StateFileError, match="not all"):
        state_from_bytes(one, INFO, cache, None)
    with pytest.raises(StateFileError):
        state_from_bytes(full, INFO, make_cache("kv", n_seq_max=2), None)
    assert target.state_hash() == before
    page = cache.stores[0].pages.pool.stride_bytes
    small = make_cache("kv", kv_bytes_max=3 * page)
    decode(small, [(range(60), (0,), range(60))])
    before = small.state_hash()
    with pytest.raises(ContextFullError):
        state_from_bytes(one, INFO, small, 1)
    assert small.state_hash() == before and small.stats().n_pages == 1


def test_versions_and_ends() -> None:
    cache, _ = shifted("kv")
    data = state_to_bytes(INFO, cache, 0)
    with pytest.raises(StateVersionError):
        state_from_bytes(data[:8] + struct.pack("<I", STATE_VERSION + 1) + data[12:], INFO, cache, 1)
    for bad in (b"", data[:5], data[:-1], data + b"\0", b"GGUF" + data[4:]):
        with pytest.raises(StateFileError):
            state_from_bytes(bad, INFO, cache, 1)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A damaged copy: flipped, cut, doubled, overwritten with extreme numbers."""
    out = bytearray(data)
    where = rng.choice([40, 400, len(out)])
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(min(where, len(out) - 8))
        match rng.randrange(5):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + 4] = struct.pack("<I", rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF]))
            case 2:
                out[at : at + 8] = struct.pack("<Q", rng.choice([2**63, 2**64 - 1, 2**40, 2**32]))
            case 3:
                del out[at : at + rng.randrange(1, 40)]
            case 4:
                out[at:at] = out[at : at + rng.randrange(1, 40)]
    return bytes(out)


def with_checksums_made_right(data: bytes) -> bytes:
    """Recompute each block's checksum as far as the lengths still make blocks, so that deeper checks are reached."""
    out, at = bytearray(data), 16
    while at + 16 <= len(out):
        (n,) = struct.unpack_from("<Q", out, at + 4)
        end = at + 12 + n
        if end + 4 > len(out):
            break
        struct.pack_into("<I", out, end, zlib.crc32(out[at:end]))
        at = end + 4
    return bytes(out)


@pytest.mark.parametrize("kind", ["kv", "iswa"])
@pytest.mark.parametrize("full", [False, True])
def test_damaged_state_changes_nothing(kind: str, full: bool) -> None:
    """llama.cpp #27068: a refused file poisons nothing."""
    cache, model = shifted(kind, 200)
    data = state_to_bytes(INFO, cache, None if full else 0, BESIDE)
    before, used = cache.state_hash(), [store.pages.used() for store in cache.stores]
    rng = random.Random(f"{kind} {full}")
    refused = 0
    for i in range(300):
        bad = mutated(rng, data)
        if bad == data:
            continue
        if i % 2:
            bad = with_checksums_made_right(bad)
        try:
            staged_into = make_cache(kind) if i % 2 else cache
            state_from_bytes(bad, INFO, staged_into, None if full else 1)
        except StateFileError:
            refused += 1
            assert staged_into is not cache or cache.state_hash() == before
        else:
            # Made right again, the damage may have hit what any value is right for: K, V, tokens, the sampler.
            assert i % 2
    assert refused > 200
    assert cache.state_hash() == before and [store.pages.used() for store in cache.stores] == used
    check(cache, model)


def test_every_flipped_byte_is_seen() -> None:
    cache, _ = shifted("kv", 20)
    decode(cache, [(range(2), (1,), range(2))])
    data = state_to_bytes(INFO, cache, 1, BESIDE)
    before = cache.state_hash()
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        with pytest.raises(StateFileError):
            state_from_bytes(bytes(bad), INFO, cache, 1)
    assert cache.state_hash() == before


def test_lengths_are_checked_before_memory_is_taken() -> None:
    cache, _ = shifted("kv")
    data = bytearray(state_to_bytes(INFO, cache, 0))
    at = data.index(b"CELL") + 12
    struct.pack_into("<I", data, at, 0xFFFFFFF0)
    with pytest.raises(StateFileError):
        state_from_bytes(with_checksums_made_right(bytes(data)), INFO, cache, 1)
    assert cache.stores[0].pages.pool.reserved_bytes < 64 << 20


# -- files


def test_file_there_and_back(tmp_path: Path) -> None:
    cache, _ = shifted("kv")
    path = tmp_path / "chat.state"
    n_bytes = state_to_file(path, INFO, cache, 0, BESIDE)
    assert path.stat().st_size == n_bytes and os.listdir(tmp_path) == ["chat.state"]
    other = make_cache("kv")
    assert state_from_file(path, INFO, other, 0).sampler == b"sampler"
    cache.seq_keep(0)
    assert other.state_hash() == cache.state_hash()


def test_missing_file_keeps_the_sequence(tmp_path: Path) -> None:
    """llama.cpp #14434."""
    cache, model = shifted("kv")
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(StateFileError):
            state_from_file(path, INFO, cache, 0)
    check(cache, model)


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]
    with atomic_write(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and os.listdir(tmp_path) == ["file"]


def test_clone_is_saved_in_another_thread(tmp_path: Path) -> None:
    cache, model = shifted("kv", 2000)
    wanted = cache.state_hash()
    twin = cache.clone()
    path = tmp_path / "clone"

    def save() -> None:
        state_to_file(path, INFO, twin, None)
        twin.close()

    thread = threading.Thread(target=save)
    thread.start()
    for _ in range(50):
        pos = model.pos_max(0) + 1
        decode(cache, [([pos], (0,), [pos])])
        model.add_tokens((0,), [pos], [pos])
    cache.seq_rm(3, 0, -1)
    model.rm(3, 0, -1)
    thread.join()
    check(cache, model)
    state_from_file(path, INFO, cache, None)
    assert cache.state_hash() == wanted


def test_reader_never_goes_past_a_block() -> None:
    import io

    cache, _ = shifted("kv", 20)
    data = state_to_bytes(INFO, cache, 0)
    reader = BlockReader(io.BytesIO(data), len(data), "x")
    n = reader.begin(b"INFO")
    with pytest.raises(StateFileError, match="too early"):
        reader.read(n + 1)
    with pytest.raises(StateFileError, match="too many"):
        reader.end()
    with pytest.raises(StateFileError):
        BlockReader(io.BytesIO(data), len(data)).begin(b"TOKS")
