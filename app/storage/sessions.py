"""The folder of session files: how much of the disk it may take.

A session file saves computing, never text: any of them can go, and its chat computes its prompt again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER_NAME = "sessions"
MAX_BYTES = 10 * 2**30
MAX_SHARE_OF_FREE = 0.10


def prune(folder: Path) -> int:
    """Delete the session files used longest ago until the rest fits min(10 GB, 10 % of what could be free).

    Halves of files that a kill left behind go too: called at start, when nothing is being written.

    Returns: the number of session files deleted.
    """
    for path in folder.glob(".*.part"):
        path.unlink(missing_ok=True)
    files = []
    for path in folder.glob("*.kv"):
        stat = path.stat()
        files.append((stat.st_mtime, stat.st_size, path))
    taken = sum(size for _, size, _ in files)
    budget = min(MAX_BYTES, int(MAX_SHARE_OF_FREE * (shutil.disk_usage(folder).free + taken)))
    n_deleted = 0
    for _, size, path in sorted(files):
        if taken <= budget:
            break
        path.unlink(missing_ok=True)
        taken -= size
        n_deleted += 1
    return n_deleted
