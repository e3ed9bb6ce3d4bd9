"""`/slots`: what the slots do, and their caches to and from files."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse

from engine.errors import ParamError
from engine.scheduler import Slot
from engine.server.answers import BadRequestError
from engine.server.fields import Fields, read_fields
from engine.server.served import Served, served_of
from engine.session_file import SessionSnapshot
from engine.session_log import SessionLog

_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


async def list_slots(request: Request) -> JSONResponse:
    """All slots."""
    infos = served_of(request).scheduler.infos()
    return JSONResponse([
        {"id": i.slot_id, "n_ctx": i.n_ctx, "is_processing": i.is_processing, "n_tokens": i.n_tokens,
         "n_pending": i.n_pending} for i in infos
    ])  # fmt: skip


async def act_on_slot(request: Request) -> JSONResponse:
    """Save, restore or erase the slot's cache."""
    served = served_of(request)
    slot = served.scheduler.slot(request.path_params["slot_id"])
    action = request.query_params.get("action", "")
    began = time.perf_counter()
    match action:
        case "erase":
            n_tokens = await served.in_scheduler(lambda: _erase(slot))
            return JSONResponse({"id_slot": slot.slot_id, "n_erased": n_tokens})
        case "save":
            path = _path(served, await read_fields(request))
            snapshot = await served.in_scheduler(lambda: _snapshot(slot))
            n_tokens = len(snapshot.beside.tokens)
            n_bytes = await asyncio.to_thread(_write, snapshot, path)
            answer: dict[str, object] = {"n_saved": n_tokens, "n_written": n_bytes}
        case "restore":
            path = _path(served, await read_fields(request))
            if not path.is_file():
                raise BadRequestError("no such file", "filename", status=404)
            n_tokens = await served.in_scheduler(lambda: _restore(slot, path))
            answer = {"n_restored": n_tokens, "n_read": path.stat().st_size}
        case _:
            raise BadRequestError("save, restore or erase", "action")
    elapsed_ms = 1e3 * (time.perf_counter() - began)
    return JSONResponse({"id_slot": slot.slot_id, "filename": path.name, **answer, "timings": {"ms": elapsed_ms}})


def _path(served: Served, fields: Fields) -> Path:
    """Where a saved slot lies: a plain name in the folder for them, whatever was asked for."""
    folder = served.config.slot_save_path
    if folder is None:
        raise BadRequestError("the server was started without a folder for saved slots", status=501)
    name = fields.text("filename")
    if not _FILE_NAME.fullmatch(name):
        fields.fail("filename", "letters, digits, '.', '_' and '-', at most 100, are allowed")
    return folder / name


def _idle(slot: Slot) -> Slot:
    if not slot.is_idle:
        raise BadRequestError(f"slot {slot.slot_id} is in use", status=409)
    return slot


def _erase(slot: Slot) -> int:
    session = _idle(slot).session
    n_tokens = session.n_used
    session.clear()
    return n_tokens


def _snapshot(slot: Slot) -> SessionSnapshot:
    session = _idle(slot).session
    if not session.n_used:
        raise ParamError(f"slot {slot.slot_id} is empty")
    return session.snapshot()


def _write(snapshot: SessionSnapshot, path: Path) -> int:
    with snapshot:
        return SessionLog(path).append(snapshot)


def _restore(slot: Slot, path: Path) -> int:
    session = _idle(slot).session
    session.load(path)
    return session.n_used
