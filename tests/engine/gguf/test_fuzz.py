"""Damaged headers by the thousand: an error of the `ModelFileError` kinds or a sound file, in bounded memory and time."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from engine.gguf import open_gguf

from .craft import Crafted, tiny_model

N_MUTATIONS = 2_000
MAX_BYTES = 1 << 20
MAX_SECONDS = 0.5
EXTREMES = [0, 1, 2, 3, 7, 8, 31, 32, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**62, 2**63 - 1, 2**63,
            2**64 - 32, 2**64 - 1]  # fmt: skip


def mutate(crafted: Crafted, rng: random.Random) -> bytes:
    """One to four changes: fields to extreme or nearby values, bytes flipped, pieces cut, doubled or put elsewhere."""
    data = bytearray(crafted.data)
    header_end = crafted.fields["data"][0]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        kind = rng.randrange(8)
        at = rng.randrange(min(header_end, len(data)) or 1)
        if kind <= 3:
            offset, form = rng.choice(list(crafted.fields.values()))
            if offset + struct.calcsize(form) <= len(data):
                write_field(data, offset, form, rng)
        elif kind <= 5 and at < len(data):
            data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        elif kind == 6:
            del data[at : at + rng.choice((1, 4, 8, 64, len(data)))]
        else:
            piece = data[at : at + rng.randrange(1, 40)]
            place = rng.randrange(len(data) + 1)
            data[place:place] = piece
    return bytes(data)


def write_field(data: bytearray, offset: int, form: str, rng: random.Random) -> None:
    if form == "<f":
        struct.pack_into(form, data, offset, rng.choice((float("nan"), float("inf"), 0.0, -1.0, 1e38)))
        return
    size = struct.calcsize(form)
    now = int.from_bytes(data[offset : offset + size], "little")
    value = rng.choice((rng.choice(EXTREMES), now + 1, now - 1, now * 2, rng.getrandbits(8 * size)))
    data[offset : offset + size] = (value % (1 << 8 * size)).to_bytes(size, "little")


def touch_everything(path: Path) -> None:
    """What a user of a file that opened would do with it."""
    with open_gguf(path) as file:
        for name, info in file.tensors.items():
            assert len(file.tensor_data(name)) == info.nbytes
            assert int(file.tensor_data(name).sum()) >= 0
        for key in file.metadata:
            for read in (file.get_int, file.get_floats, file.get_strings, file.get_str):
                try:
                    list(result) if hasattr(result := read(key), "__iter__") else result
                except ModelFileError as error:
                    assert str(error)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_headers(tmp_path: Path, seed: int) -> None:
    rng, crafted = random.Random(seed), tiny_model()
    path = tmp_path / "model.gguf"
    n_refused = 0
    tracemalloc.start()
    try:
        for i in range(N_MUTATIONS // 4):
            path.write_bytes(mutate(crafted, rng))
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
            try:
                touch_everything(path)
            except ModelFileError as error:
                n_refused += 1
                assert str(path) in str(error)
            peak = tracemalloc.get_traced_memory()[1]
            assert peak - before < MAX_BYTES, f"mutation {i}: {peak - before:,} bytes"
            assert time.perf_counter() - started < MAX_SECONDS, f"mutation {i}"
    finally:
        tracemalloc.stop()
    assert n_refused > N_MUTATIONS // 16, "the mutations do not bite"


def test_the_unmutated_file_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_model().data)
    touch_everything(path)
