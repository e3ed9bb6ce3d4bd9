"""The folder of session files: what is in it, and how much of the disk it may take.

A session file saves computing, never text: any of them can go, and its chat computes its prompt again.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

FOLDER_NAME = "sessions"
MAX_BYTES = 10 * 10**9
MAX_SHARE_OF_FREE = 0.10


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One session file.

    Attributes:
        used_at: when it was written last, seconds since the epoch.
    """

    name: str
    n_bytes: int
    used_at: float

    @property
    def chat_id(self) -> int:
        """The chat whose memory it is, 0 for a file that is not ours."""
        first = self.name.partition(".")[0]
        return int(first) if first.isdecimal() else 0


def entries(folder: Path) -> list[FileEntry]:
    """Return the session files, the one used longest ago first."""
    found = []
    for path in folder.glob("*.kv"):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(FileEntry(path.name, stat.st_size, stat.st_mtime))
    return sorted(found, key=lambda entry: entry.used_at)


def budget(folder: Path, asked: int = 0) -> int:
    """Return the bytes that session files may take: those asked for, else 10 GB or a tenth of what could be free."""
    taken = sum(entry.n_bytes for entry in entries(folder))
    return asked or min(MAX_BYTES, int(MAX_SHARE_OF_FREE * (shutil.disk_usage(folder).free + taken)))


def prune(folder: Path, asked: int = 0, pinned: Collection[str] = ()) -> int:
    """Delete the session files used longest ago until the rest fits the budget; pinned ones stay.

    Returns: the number of session files deleted.
    """
    found = entries(folder)
    taken, allowed = sum(entry.n_bytes for entry in found), budget(folder, asked)
    n_deleted = 0
    for entry in found:
        if taken <= allowed:
            break
        if entry.name not in pinned:
            (folder / entry.name).unlink(missing_ok=True)
            taken -= entry.n_bytes
            n_deleted += 1
    return n_deleted


def remove_halves(folder: Path) -> None:
    """Delete halves of files that a kill left behind; at start, when nothing is being written."""
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
