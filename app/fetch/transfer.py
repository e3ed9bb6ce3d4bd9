"""Fetch one file: into `.part`, piece by piece, each noted in the journal, whole only when its SHA-256 is right.

Killed at any moment, it goes on at the last piece that was noted. Nobody sees a half file as a model: it gets its name
at the end.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.fetch.errors import LostError, LyingServerError, NoRoomError, WrongHashError
from app.fetch.journal import PIECE_BYTES, Journal
from app.fetch.web import Answer, ask

TIMEOUT_S = 20.0
"""Without a byte for so long a connection counts as lost."""
N_ATTEMPTS = 6
"""In a row that brought nothing."""
MAX_PAUSE_S = 30.0
SPARE_BYTES = 64 << 20
"""Left free on the disk."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that can be fetched.

    Attributes:
        size_bytes: 0 where it is not known; sha256: "" likewise.
    """

    url: str
    size_bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is.

    Attributes:
        n_total: 0 where nobody says.
        bytes_s: of the last seconds; 0 at the start.
        left_s: seconds left at that rate; 0 where that is not known.
    """

    n_done: int
    n_total: int
    bytes_s: float
    left_s: float


class Transfer:
    """Fetches a file to a path.

    Args:
        remote: what.
        target: where it goes when it is whole.
        token: for the server, "" for none; it is sent to no other host.
        on_progress: told how far it is, some times a second.
        is_cancelled: asked often; what has arrived is kept.
        pause: waits some seconds between attempts.

    Thread: any, one at a time.
    """

    def __init__(
        self,
        remote: RemoteFile,
        target: Path,
        *,
        token: str = "",
        on_progress: Callable[[Progress], None] = lambda progress: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        pause: Callable[[float], object] = time.sleep,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._remote, self._target, self._token = remote, target, token
        self._on_progress, self._is_cancelled, self._pause, self._timeout_s = (
            on_progress, is_cancelled, pause, timeout_s
        )  # fmt: skip
        self._part = target.with_name(f"{target.name}.part")
        self._journal = Journal(journal_path(target), remote.url, remote.size_bytes, remote.sha256)
        self._whole = hashlib.sha256()
        self._piece = hashlib.sha256()
        self._n_done = 0
        self._rate = _Rate()

    def run(self) -> bool:
        """Fetch it, going on where an earlier attempt was ended; False where it was cancelled.

        Raises: FetchError kinds, OSError: the disk.
        """
        self._target.parent.mkdir(parents=True, exist_ok=True)
        self._resume()
        n_failed = 0
        while not self._is_whole():
            before = self._n_done
            try:
                if not self._read():
                    return False
            except (TimeoutError, ConnectionError, http.client.HTTPException, OSError) as error:
                if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
                    raise
                n_failed = 0 if self._n_done > before else n_failed + 1
                if n_failed >= N_ATTEMPTS:
                    raise LostError(_said(error)) from None
                self._pause(min(2.0 ** (n_failed - 1), MAX_PAUSE_S))
                if self._is_cancelled():
                    return False
        self._finish()
        return True

    def _resume(self) -> None:
        """Take over the pieces of an earlier attempt that are as noted."""
        known = Journal.load(self._journal.path)
        same = known is not None and (known.url, known.sha256) == (self._remote.url, self._remote.sha256)
        if known is None or not same or (self._remote.size_bytes not in (0, known.size_bytes)):
            self._restart("")
            return
        self._journal = known
        n_good = known.n_good(self._part)
        del known.pieces[n_good:]
        n_bytes = min(n_good * PIECE_BYTES, known.size_bytes or n_good * PIECE_BYTES)
        with self._part.open("ab") as file:
            file.truncate(n_bytes)
        with self._part.open("rb") as file:
            while data := file.read(PIECE_BYTES):
                self._whole.update(data)
        self._n_done = n_bytes
        known.begin()

    def _restart(self, etag: str) -> None:
        self._journal.pieces.clear()
        self._journal.etag = etag
        self._journal.begin()
        with self._part.open("wb"):
            pass
        self._whole, self._piece, self._n_done = hashlib.sha256(), hashlib.sha256(), 0

    def _is_whole(self) -> bool:
        return 0 < self._journal.size_bytes == self._n_done

    def _read(self) -> bool:
        """Read until the file or the connection ends; False where it was cancelled."""
        answer = ask(self._remote.url, self._n_done, 0, self._journal.etag, self._token, self._timeout_s)
        try:
            self._take(answer)
            with self._part.open("r+b") as file:
                file.seek(self._n_done)
                for data in answer.chunks():
                    if self._is_cancelled():
                        return False
                    if self._journal.size_bytes and self._n_done + len(data) > self._journal.size_bytes:
                        raise LyingServerError("more bytes than the file has")
                    self._write(file.fileno(), data)
            if not self._journal.size_bytes:  # the server did not say how long it is: it is what came
                self._journal.size_bytes = self._n_done
                self._journal.begin()
            if not self._is_whole():
                raise ConnectionError("the file ended early")
            return True
        finally:
            answer.close()

    def _take(self, answer: Answer) -> None:
        """Check what is answered against what is known; a new version of the file starts it anew."""
        expected = self._remote.size_bytes
        if expected and answer.size_bytes and answer.size_bytes != expected:
            raise LyingServerError(f"a file of {answer.size_bytes:,} bytes instead of {expected:,}")
        if answer.begin == 0 or not self._journal.etag:
            if answer.begin == 0:
                self._journal.size_bytes = answer.size_bytes or expected
                self._restart(answer.etag)
            else:
                self._journal.etag = answer.etag
        elif answer.size_bytes and self._journal.size_bytes not in (0, answer.size_bytes):
            raise LyingServerError("a part of a file of another size")
        free = shutil.disk_usage(self._part.parent).free
        needed = self._journal.size_bytes - self._n_done + SPARE_BYTES
        if self._journal.size_bytes and free < needed:
            raise NoRoomError(needed, free)

    def _write(self, descriptor: int, data: bytes) -> None:
        """Put bytes into the file, and note each piece that is complete."""
        view = memoryview(data)
        while view:
            room = PIECE_BYTES - self._n_done % PIECE_BYTES
            taken = view[:room]
            while taken:
                taken = taken[os.write(descriptor, taken) :]
            taken, view = view[:room], view[room:]
            self._whole.update(taken)
            self._piece.update(taken)
            self._n_done += len(taken)
            if len(taken) == room:
                self._note_piece(descriptor)
        n_total = self._journal.size_bytes
        progress = self._rate.progress(self._n_done, n_total)
        if progress is not None:
            self._on_progress(progress)

    def _note_piece(self, descriptor: int) -> None:
        os.fsync(descriptor)
        self._journal.add(self._piece.hexdigest())
        self._piece = hashlib.sha256()

    def _finish(self) -> None:
        """Check the whole file and give it its name. Raises: WrongHashError: nothing of it is kept."""
        got = self._whole.hexdigest()
        if self._remote.sha256 and got != self._remote.sha256:
            self._part.unlink()
            self._journal.path.unlink()
            raise WrongHashError(self._remote.sha256, got)
        with self._part.open("r+b") as file:
            if self._n_done % PIECE_BYTES and len(self._journal.pieces) == self._n_done // PIECE_BYTES:
                self._note_piece(file.fileno())
        self._part.replace(self._target)
        self._on_progress(Progress(self._n_done, self._n_done, 0.0, 0.0))


def journal_path(target: Path) -> Path:
    """Where the journal of a file lies."""
    return target.with_name(f".{target.name}.journal")


def repair(target: Path, remote: RemoteFile, *, token: str = "", timeout_s: float = TIMEOUT_S) -> int:
    """Fetch the pieces of a file again that differ from its journal; without a journal, the whole file.

    Returns: how many bytes were fetched.
    Raises: FetchError kinds, OSError; a file that could not be repaired is left as it was, but for good pieces.
    """
    journal = Journal.load(journal_path(target))
    n_pieces = -(-journal.size_bytes // PIECE_BYTES) if journal is not None else 0
    if journal is None or not journal.size_bytes or len(journal.pieces) != n_pieces or not target.is_file():
        Transfer(remote, target, token=token, timeout_s=timeout_s).run()
        return target.stat().st_size
    n_fetched = 0
    with target.open("r+b") as file:
        file.truncate(journal.size_bytes)
        for i, is_good in enumerate(journal.check(target)):
            if is_good:
                continue
            begin, end = i * PIECE_BYTES, min((i + 1) * PIECE_BYTES, journal.size_bytes)
            data = _fetch_piece(journal, begin, end, token, timeout_s)
            got = hashlib.sha256(data).hexdigest()
            if got != journal.pieces[i]:
                raise WrongHashError(journal.pieces[i], got)
            file.seek(begin)
            file.write(data)
            n_fetched += len(data)
        file.flush()
        os.fsync(file.fileno())
    return n_fetched


def _fetch_piece(journal: Journal, begin: int, end: int, token: str, timeout_s: float) -> bytes:
    try:
        answer = ask(journal.url, begin, end, journal.etag, token, timeout_s)
        try:
            if answer.begin != begin or answer.size_bytes not in (0, journal.size_bytes):
                raise LyingServerError("another version of the file")
            data = bytearray()
            for chunk in answer.chunks():
                data += chunk
                if len(data) >= end - begin:
                    break
            return bytes(data[: end - begin])
        finally:
            answer.close()
    except (OSError, http.client.HTTPException) as error:
        raise LostError(_said(error)) from None


def _said(error: BaseException) -> str:
    return " ".join(str(getattr(error, "reason", "") or error).split())[:200] or type(error).__name__


class _Rate:
    """Bytes a second of the last seconds, told a few times a second."""

    WINDOW_S, TELL_S = 5.0, 0.25

    def __init__(self) -> None:
        self._seen: list[tuple[float, int]] = []
        self._told_at = 0.0

    def progress(self, n_done: int, n_total: int) -> Progress | None:
        """How far it is, where it is time to say so."""
        now = time.monotonic()
        if now - self._told_at < self.TELL_S:
            return None
        self._told_at = now
        self._seen = [seen for seen in self._seen if now - seen[0] < self.WINDOW_S] + [(now, n_done)]
        began, n_before = self._seen[0]
        rate = (n_done - n_before) / (now - began) if now > began else 0.0
        return Progress(n_done, n_total, rate, (n_total - n_done) / rate if rate > 0 and n_total else 0.0)


_OF_THE_DISK = frozenset({5, 27, 28, 30, 122})
"""EIO, EFBIG, ENOSPC, EROFS, EDQUOT: trying again does not help. Source: errno(3), Linux."""
