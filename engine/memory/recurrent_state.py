"""Recurrent states as blocks of a state file, and as a digest.

    RCHD  u32 1 for all sequences, 0 for one | the memory's fingerprint
    SLOT  u32 n_slots | u32 n_seq | per sequence: i32 seq_id, i32 first position, u32 n | n times: u32 slot, i32
          position, u32 1 for a snapshot to keep
    STAT  the slots

Slots that several sequences share are written once.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

from cext.pages import PageSet, PagesFullError
from engine.errors import ContextFullError, OutOfMemoryError, StateMismatchError
from engine.io import BlockReader, BlockWriter
from engine.memory.base import MemoryParams
from engine.memory.layout import PAGE_CELLS
from engine.memory.state_slots import SeqStates, Slot, StateLayout

_SCOPE = struct.Struct("<I")
_HEAD = struct.Struct("<II")
_SEQ = struct.Struct("<iiI")
_SLOT = struct.Struct("<IiI")
_FINGERPRINT_MAX = 1 << 20


def save_states(
    fingerprint: str,
    layout: StateLayout,
    pages: PageSet,
    seqs: Mapping[int, SeqStates],
    writer: BlockWriter,
    is_full: bool,
) -> None:
    """Write these sequences."""
    head = _SCOPE.pack(is_full) + fingerprint.encode()
    writer.block(b"RCHD", [head], len(head))
    index: dict[int, int] = {}
    parts: list[bytes] = []
    for seq_id in sorted(seqs):
        states = seqs[seq_id]
        parts.append(_SEQ.pack(seq_id, states.pos0, len(states.slots)))
        for slot in states.slots:
            i = index.setdefault(slot.page_id, len(index))
            parts.append(_SLOT.pack(i, slot.pos, slot.is_kept))
    parts.insert(0, _HEAD.pack(len(index), len(seqs)))
    writer.block(b"SLOT", parts, sum(len(part) for part in parts))
    writer.block(b"STAT", (pages.pool.view(page_id).data for page_id in index), len(index) * layout.slot_bytes)


def load_states(
    fingerprint: str,
    layout: StateLayout,
    pages: PageSet,
    reader: BlockReader,
    seq_id: int | None,
    params: MemoryParams,
) -> dict[int, SeqStates]:
    """Read what `save_states` wrote into fresh slots, in a transaction of the pages that is left open.

    Snapshots that there is no room for are left out, oldest first.

    Raises: StateFileError kinds; ContextFullError, OutOfMemoryError: no room. Roll the pages back then.
    """
    head = reader.whole(b"RCHD", _FINGERPRINT_MAX)
    if len(head) < _SCOPE.size:
        raise reader.error("the memory's header is too short")
    found = head[_SCOPE.size :].decode(errors="replace")
    if found != fingerprint:
        raise StateMismatchError(
            f"made for another memory: '{found[:200]}', this is '{fingerprint[:200]}'", reader.name
        )
    if _SCOPE.unpack_from(head)[0] != (seq_id is None):
        raise reader.error("holds all sequences, not one" if seq_id is not None else "holds one sequence, not all")
    n_bytes = reader.begin(b"SLOT")
    n_slots, n_seq = _HEAD.unpack(reader.read(_HEAD.size))
    if n_seq > (params.n_seq_max if seq_id is None else 1) or n_slots * _SLOT.size > n_bytes:
        raise reader.error(f"{n_seq} sequences with {n_slots} states do not fit")
    saved: dict[int, SeqStates] = {}
    for _ in range(n_seq):
        found_id, pos0, n = _SEQ.unpack(reader.read(_SEQ.size))
        target = found_id if seq_id is None else seq_id
        if target in saved or not 0 <= target < params.n_seq_max or n * _SLOT.size > n_bytes:
            raise reader.error(f"sequence {target} is out of range or there twice")
        saved[target] = _read_slots(reader, n, pos0, n_slots, params.n_ctx)
    reader.end()
    if _indices(saved) != set(range(n_slots)):
        raise reader.error("states without a sequence")
    if reader.begin(b"STAT") != n_slots * layout.slot_bytes:
        raise reader.error(f"the data is not that of {n_slots} states")
    saved = _as_room_allows(saved, pages.pool.n_free)
    places = _read_data(layout, pages, reader, n_slots, _indices(saved))
    return {
        s: SeqStates(
            states.pos0, tuple(Slot(x.pos, places[x.page_id][0], places[x.page_id][1], x.is_kept) for x in states.slots)
        )
        for s, states in saved.items()
    }


def _read_slots(reader: BlockReader, n: int, pos0: int, n_slots: int, n_ctx: int) -> SeqStates:
    """A sequence whose slots name the index in the file as their page."""
    slots: list[Slot] = []
    for _ in range(n):
        index, pos, is_kept = _SLOT.unpack(reader.read(_SLOT.size))
        if index >= n_slots or pos < (slots[-1].pos + 1 if slots else max(pos0, 0)) or is_kept > 1:
            raise reader.error("the states of a sequence are inconsistent")
        slots.append(Slot(pos, index, 0, bool(is_kept)))
    if not slots or pos0 < 0:
        raise reader.error("a sequence without a state")
    if slots[-1].pos >= n_ctx:
        raise StateMismatchError(f"has position {slots[-1].pos}, this context has {n_ctx}", reader.name)
    return SeqStates(pos0, tuple(slots))


def _indices(saved: Mapping[int, SeqStates]) -> set[int]:
    """The slots of the file that these sequences have."""
    return {slot.page_id for states in saved.values() for slot in states.slots}


def _as_room_allows(saved: dict[int, SeqStates], n_free: int) -> dict[int, SeqStates]:
    """With the newest snapshots only, as many as there is room for; where the sequences stand is always kept."""
    n_snapshots = max((len(states.slots) - 1 for states in saved.values()), default=0)
    while n_snapshots and len(_indices(saved)) > n_free:
        n_snapshots -= 1
        saved = {s: states.thinned(n_snapshots) for s, states in saved.items()}
    return saved


def _read_data(
    layout: StateLayout, pages: PageSet, reader: BlockReader, n_slots: int, wanted: set[int]
) -> dict[int, tuple[int, int]]:
    """(page_id, address) of each wanted slot, filled; the others are read over."""
    pages.begin()
    places: dict[int, tuple[int, int]] = {}
    try:
        for i in range(n_slots):
            if i not in wanted:
                reader.read(layout.slot_bytes)
                continue
            ((page, page_id, _, _),) = pages.take_cells(-1, 0, PAGE_CELLS)
            reader.read_into(pages.pool.view(page_id))
            places[i] = page_id, page
    except PagesFullError:
        raise ContextFullError(len(wanted), len(places) + pages.pool.n_free, "states") from None
    except MemoryError:
        raise OutOfMemoryError(layout.slot_bytes, "recurrent state") from None
    reader.end()
    return places


def states_hash(layout: StateLayout, pages: PageSet, seqs: Mapping[int, SeqStates]) -> bytes:
    """Digest of every sequence's states and positions."""
    digest = hashlib.blake2b(digest_size=32)
    for seq_id in sorted(seqs):
        states = seqs[seq_id]
        digest.update(_SEQ.pack(seq_id, states.pos0, len(states.slots)))
        for slot in states.slots:
            digest.update(_SLOT.pack(0, slot.pos, slot.is_kept))
            digest.update(pages.pool.view(slot.page_id).data)
    return digest.digest()
