"""Files of llama.cpp go on here as they would there, and damaged ones change nothing.

The files under tests/data/llama_state come from llama-cpp-python 0.3.36: the first 16 tokens of a case, computed with
an f32 cache (llama-f16: f16, flash attention, two more sequences of 10 tokens, from the case's second and third token
on; qwen2vl: the six tokens before the image, and the image). The logits beside them are those that llama.cpp gave for the
case's other tokens.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.errors import StateFileError, StateMismatchError, StateVersionError
from engine.types import F32Array
from tests.engine.oracle_cases import DATA, context, load_case, nmse, tokens_of
from tests.engine.test_state import mutated

FILES = DATA / "llama_state"
N_PAST = 16
GELU_TABLE = 1e-6
"""NMSE to llama.cpp's gemma3, whose GELU is a table of f16."""


def rest(ctx: engine.Context, name: str, seq_id: int) -> F32Array:
    """Logits of the case's tokens behind the first 16."""
    ctx.decode(engine.Batch.from_tokens(tokens_of(load_case(name)[0])[N_PAST:], N_PAST, seq_id, "all"))
    return ctx.get_logits()


def load(ctx: engine.Context, path: Path, seq_id: int) -> list[int]:
    """Load either sort of file; the tokens beside it."""
    beside = ctx.state_load_file(path) if path.suffix == ".session" else ctx.state_seq_load_file(path, seq_id)
    return [int(token) for token in beside.tokens]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama", "session"), ("llama", "sequence"), ("gemma3", "session"), ("gemma3", "sequence"),
        ("deepseek2-yarn", "sequence"),
    ],
)  # fmt: skip
def test_a_file_goes_on_as_it_would_in_llama_cpp(name: str, kind: str) -> None:
    seq_id = 0 if kind == "session" else 2
    ctx = context(name)
    ctx.decode(engine.Batch.from_tokens([1, 2, 3], seq_id=seq_id))
    assert load(ctx, FILES / f"{name}.{kind}", seq_id) == tokens_of(load_case(name)[0])[:N_PAST]
    assert ctx.get_kv_self().seq_ids() == (seq_id,)
    assert nmse(rest(ctx, name, seq_id), np.load(FILES / f"{name}.npy")) < (GELU_TABLE if name == "gemma3" else 1e-10)


@pytest.mark.parametrize("kind", ["session", "sequence"])
def test_a_file_with_an_image_goes_on_behind_it(kind: str) -> None:
    case, _ = load_case("qwen2vl")
    ctx = context("qwen2vl")
    load(ctx, FILES / f"qwen2vl.{kind}", 0)
    kv = ctx.get_kv_self()
    assert (kv.seq_pos_max(0), kv.stats().n_tokens, kv.caps.shift) == (8, 12, False)
    after = case["tokens_after"]
    assert isinstance(after, list)
    ctx.decode(engine.Batch.from_tokens(after, None, logits="all"))
    assert nmse(ctx.get_logits(), np.load(FILES / "qwen2vl.npy")) < 1e-10


def test_streams_and_rows_that_are_not_transposed() -> None:
    path = FILES / "llama-f16.session"
    want, tokens = np.load(FILES / "llama-f16.npy"), tokens_of(load_case("llama")[0])
    ctx = context("llama", type_k="f16", type_v="f16")
    ctx.state_load_file(path)
    kv = ctx.get_kv_self()
    assert [(s, kv.seq_pos_max(s)) for s in kv.seq_ids()] == [(0, 15), (1, 9), (2, 9)]
    assert nmse(rest(ctx, "llama", 0), want) < 1e-6
    for seq_id in (1, 2):
        fresh = context("llama", type_k="f16", type_v="f16")
        fresh.decode(engine.Batch.from_tokens(tokens[seq_id : seq_id + 10]))
        for each, s in ((fresh, 0), (ctx, seq_id)):
            each.decode(engine.Batch.from_tokens([7], 10, s))
        assert nmse(ctx.get_logits(), fresh.get_logits()) < 1e-6
    wider = context("llama")
    with pytest.raises(StateMismatchError, match="converted if asked"):
        wider.state_load_file(path)
    wider.state_load_file(path, convert_kv=True)
    assert nmse(rest(wider, "llama", 0), want) < 1e-6


def older_session(data: bytes, *, streams: bool) -> bytes:
    """The same session in version 9: with outputs, and as the first of that version without streams."""
    at = 12 + 4 * N_PAST
    at += 4 + struct.unpack_from("<I", data, at)[0]
    outputs = struct.pack("<Ii", 1, 15) + struct.pack("<Q3f", 3, 0.5, 1.5, 2.5) + struct.pack("<Q", 0)
    return b"nsgg" + struct.pack("<I", 9) + data[8:at] + outputs + data[at if streams else at + 4 :]


def older_sequence(data: bytes, *, streams: bool) -> bytes:
    """The same sequence in version 2."""
    at = 12 + 4 * N_PAST
    return b"qsgg" + struct.pack("<I", 2) + data[8:at] + data[at if streams else at + 4 :]


@pytest.mark.parametrize("streams", [True, False])
def test_older_versions(streams: bool, tmp_path: Path) -> None:
    for kind, made in (("session", older_session), ("sequence", older_sequence)):
        path = tmp_path / f"old.{kind}"
        path.write_bytes(made((FILES / f"llama.{kind}").read_bytes(), streams=streams))
        ctx = context("llama")
        assert len(load(ctx, path, 0)) == N_PAST
        assert nmse(rest(ctx, "llama", 0), np.load(FILES / "llama.npy")) < 1e-10


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    session, sequence = FILES / "llama.session", FILES / "llama.sequence"
    ctx = context("llama")
    with pytest.raises(StateMismatchError, match="architecture 'llama', this one is 'qwen2'"):
        context("qwen2").state_load_file(session)
    with pytest.raises(StateMismatchError, match="the model"):
        context("llama-q4_0").state_load_file(session)
    with pytest.raises(StateMismatchError, match="RecurrentMemory"):
        context("mamba").state_seq_load_file(sequence, 0)
    with pytest.raises(StateMismatchError, match="has position 15"):
        context("llama", n_ctx=8).state_load_file(session)
    with pytest.raises(StateFileError, match="holds all sequences"):
        ctx.state_seq_load_file(session, 0)
    with pytest.raises(StateFileError, match="holds one sequence"):
        ctx.state_load_file(sequence)
    newer = tmp_path / "newer"
    newer.write_bytes(b"nsgg" + struct.pack("<I", 11) + session.read_bytes()[8:])
    with pytest.raises(StateVersionError, match="11"):
        ctx.state_load_file(newer)
    poisoned = tmp_path / "poisoned"
    poisoned.write_bytes(sequence.read_bytes()[:-4] + struct.pack("<f", float("nan")))
    with pytest.raises(StateFileError, match="not finite"):
        ctx.state_seq_load_file(poisoned, 0)
    assert ctx.get_kv_self().seq_ids() == ()


@pytest.mark.parametrize(
    "name", ["llama.session", "llama.sequence", "gemma3.session", "llama-f16.session", "qwen2vl.sequence"]
)
def test_damaged_files_change_nothing(name: str, tmp_path: Path) -> None:
    model = name.partition(".")[0].partition("-")[0]
    ctx = context(model, **({"type_k": "f16", "type_v": "f16"} if "f16" in name else {}))
    ctx.decode(engine.Batch.from_tokens(list(range(1, 40)), seq_id=1))
    data, path, rng = (FILES / name).read_bytes(), tmp_path / Path(name), random.Random(name)
    before = ctx.get_kv_self().state_hash()
    n_refused = 0
    for _ in range(500):
        path.write_bytes(mutated(rng, data))
        try:
            load(ctx, path, 2)
        except StateFileError:
            n_refused += 1
            assert ctx.get_kv_self().state_hash() == before
        else:  # the damage hit what any value is right for: tokens, K, V, a position that still makes sense
            before = ctx.get_kv_self().state_hash()
    assert n_refused > 250
