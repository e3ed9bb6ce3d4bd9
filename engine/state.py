"""Saved state: a memory with the tokens that made it and the sampler's state, to and from bytes and files.

The blocks, in this order, inside the container of `engine.io`:

    INFO  u32 n | the model's fingerprint | u32 n | the parameters that change numbers
    TOKS  i32 tokens
    ...   the memory's own blocks (`engine.memory.kv_state`)
    SMPL  the sampler's state, may be empty
    CHAT  whose turns the tokens are (`engine.session_file`), may be empty

Everything is read, checked and staged before anything is replaced: bad data changes nothing. A memory may be saved
from a `clone()` in another thread; rows go from its pages to the file without a copy in between.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.errors import StateFileError, StateMismatchError
from engine.io import BlockCounter, BlockReader, BlockWriter, atomic_write
from engine.llama_state import LlamaState, is_llama_state
from engine.memory import Memory
from engine.memory.row_log import RowSink, RowSource
from engine.types import I32Array

_LENGTH = struct.Struct("<I")
_INFO_MAX = 1 << 20
_SAMPLER_MAX = 1 << 24
_CHAT_MAX = 1 << 26


@dataclass(frozen=True, slots=True)
class StateInfo:
    """What must be the same for saved state to mean the same.

    Attributes:
        model: the model's fingerprint.
        params: parameters that change the numbers (adapters, rope scaling), as one text.
        arch: the model's architecture; files of llama.cpp tell no more of the model.
    """

    model: str
    params: str = ""
    arch: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SavedTokens:
    """What stands beside the memory in saved state.

    Attributes:
        tokens: i32[n], whatever was given when saving.
        sampler: the sampler's state, may be empty.
        chat: the books of a session, may be empty.
    """

    tokens: I32Array
    sampler: bytes = b""
    chat: bytes = b""


def write_state(
    writer: BlockWriter,
    info: StateInfo,
    memory: Memory | LlamaState,
    seq_id: int | None,
    beside: SavedTokens | None = None,
    sink: RowSink | None = None,
) -> None:
    """Write one sequence, or all for None, and the end mark. Thread: any, on a memory of its own.

    Args:
        sink: takes the rows of cells, see `engine.memory.row_log`.
    """
    parts: list[bytes] = []
    for text in (info.model.encode(), info.params.encode()):
        parts += [_LENGTH.pack(len(text)), text]
    writer.block(b"INFO", parts, sum(len(part) for part in parts))
    tokens = b"" if beside is None else beside.tokens.astype("<i4").tobytes()
    writer.block(b"TOKS", [tokens], len(tokens))
    if sink is None:
        memory.save(writer, seq_id)
    else:
        assert isinstance(memory, Memory)
        memory.save(writer, seq_id, sink)
    sampler = b"" if beside is None else beside.sampler
    writer.block(b"SMPL", [sampler], len(sampler))
    chat = b"" if beside is None else beside.chat
    writer.block(b"CHAT", [chat], len(chat))
    writer.close()


def read_state(
    reader: BlockReader,
    info: StateInfo,
    memory: Memory,
    seq_id: int | None,
    convert_kv: bool = False,
    source: RowSource | None = None,
) -> SavedTokens:
    """Replace a sequence of the memory, or all for None, by what `write_state` wrote.

    Args:
        convert_kv: take K and V that were kept in other types, and convert them.
        source: has the rows of cells, where they went to a sink.

    Returns: what stands beside it.
    Raises:
        StateFileError: damaged, or of another version; StateMismatchError: of another model or other parameters.
        ContextFullError, OutOfMemoryError: sound, but there is no room. In each case nothing changed.
    """
    _check_info(reader, info)
    n_bytes = reader.begin(b"TOKS")
    if n_bytes % 4:
        raise reader.error("the tokens have a fraction of one")
    tokens = reader.read_array(np.dtype("<i4"), n_bytes // 4).astype(np.int32)
    reader.end()
    staged = memory.load(reader, seq_id, convert_kv, source)
    try:
        sampler = reader.whole(b"SMPL", _SAMPLER_MAX)
        chat = reader.whole(b"CHAT", _CHAT_MAX)
        reader.close()
    except BaseException:
        staged.discard()
        raise
    staged.swap_in()
    return SavedTokens(tokens, sampler, chat)


def _check_info(reader: BlockReader, info: StateInfo) -> None:
    data = reader.whole(b"INFO", _INFO_MAX)
    at = 0
    for what, expected in (("model", info.model), ("parameters", info.params)):
        if at + _LENGTH.size > len(data):
            raise reader.error("the header is too short")
        (n,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found = data[at : at + n].decode(errors="replace")
        at += n
        if at > len(data):
            raise reader.error("the header is too short")
        if found != expected:
            raise StateMismatchError(f"made with another {what}: '{found[:200]}', here '{expected[:200]}'", reader.name)


# -- to and from bytes and files


def state_size(info: StateInfo, memory: Memory, seq_id: int | None, beside: SavedTokens | None = None) -> int:
    """Bytes that the state takes now."""
    counter = BlockCounter()
    write_state(counter, info, memory, seq_id, beside)
    return counter.n_bytes


def state_to_bytes(info: StateInfo, memory: Memory, seq_id: int | None, beside: SavedTokens | None = None) -> bytes:
    """The state as bytes."""
    sink = io.BytesIO()
    write_state(BlockWriter(sink), info, memory, seq_id, beside)
    return sink.getvalue()


def state_from_bytes(
    data: bytes, info: StateInfo, memory: Memory, seq_id: int | None, convert_kv: bool = False
) -> SavedTokens:
    """Load what `state_to_bytes` made. Raises: as `read_state`."""
    return read_state(BlockReader(io.BytesIO(data), len(data)), info, memory, seq_id, convert_kv)


def state_to_file(
    path: Path | str, info: StateInfo, memory: Memory, seq_id: int | None, beside: SavedTokens | None = None
) -> int:
    """Write a file that is there whole or not at all: its bytes.

    Raises: OSError: the disk's own words; an older file stays.
    """
    with atomic_write(Path(path)) as file:
        writer = BlockWriter(file)
        write_state(writer, info, memory, seq_id, beside)
        return writer.n_bytes


def state_from_file(
    path: Path | str, info: StateInfo, memory: Memory, seq_id: int | None, convert_kv: bool = False
) -> SavedTokens:
    """Load a file that `state_to_file` or llama.cpp wrote.

    Raises: as `read_state`; StateFileError: it cannot be opened or read.
    """
    try:
        with open(path, "rb") as file:
            if is_llama_state(file.read(4)):
                file.seek(0)
                return _read_llama_state(file.read(), info, memory, seq_id, convert_kv, path)
            return read_state(BlockReader(file, _n_bytes(file), path), info, memory, seq_id, convert_kv)
    except OSError as error:
        raise StateFileError(f"cannot be read: {error.strerror or error}", path) from error


def _read_llama_state(
    data: bytes, info: StateInfo, memory: Memory, seq_id: int | None, convert_kv: bool, name: object
) -> SavedTokens:
    foreign = LlamaState(data, info.arch, memory, name)
    sink = io.BytesIO()
    write_state(BlockWriter(sink), info, foreign, seq_id, SavedTokens(foreign.tokens))
    sink.seek(0)
    return read_state(BlockReader(sink, sink.getbuffer().nbytes, name), info, memory, seq_id, convert_kv)


def _n_bytes(file: BinaryIO) -> int:
    n_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    return n_bytes
