"""The journal of a file that is fetched: what it is, and the SHA-256 of each piece that is safe on the disk.

Stands beside the `.part` file; once the file is whole it stays, so that damage can be found and repaired.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

PIECE_BYTES = 8 << 20
VERSION = 1
MAX_JOURNAL_BYTES = 64 << 20


@dataclass(slots=True)
class Journal:
    """What is known of a file on its way.

    Attributes:
        path: of the journal.
        url: where the file comes from.
        size_bytes: of the whole file; 0 while nobody said.
        sha256: what the whole file should have; "" where nobody said.
        etag: of the server's version, for `If-Range`.
        pieces: SHA-256 of each piece that is there, in order; all but the last have PIECE_BYTES.
    """

    path: Path
    url: str
    size_bytes: int = 0
    sha256: str = ""
    etag: str = ""
    pieces: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Journal | None:
        """The journal in a file; None where there is none that can be used. A half-written last line is left out."""
        try:
            if path.stat().st_size > MAX_JOURNAL_BYTES:
                return None
            head, *lines = path.read_text(encoding="utf-8").split("\n")
            said = json.loads(head)
            if said["version"] != VERSION or said["piece_bytes"] != PIECE_BYTES:
                return None
            size = said["size_bytes"]
            if not isinstance(size, int) or size < 0:
                return None
            journal = cls(path, str(said["url"]), size, str(said["sha256"]), str(said["etag"]))
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        # The last line is whole only if something, be it nothing, follows its end.
        for line in lines[:-1]:
            if len(line) != 64:
                break
            journal.pieces.append(line)
        return journal

    def begin(self) -> None:
        """Write it anew. Raises: OSError."""
        head = {
            "version": VERSION, "piece_bytes": PIECE_BYTES, "url": self.url, "size_bytes": self.size_bytes,
            "sha256": self.sha256, "etag": self.etag,
        }  # fmt: skip
        text = "".join(f"{line}\n" for line in (json.dumps(head), *self.pieces))
        part = self.path.with_name(f"{self.path.name}.new")
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path)

    def add(self, digest: str) -> None:
        """Note a piece that is safe on the disk. Raises: OSError."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{digest}\n")
            file.flush()
            os.fsync(file.fileno())
        self.pieces.append(digest)

    def n_good(self, part: Path) -> int:
        """How many pieces at the beginning of a file are as noted."""
        return next((i for i, is_good in enumerate(self.check(part)) if not is_good), len(self.pieces))

    def check(self, path: Path) -> list[bool]:
        """For each piece that was noted, whether a file has it."""
        found = []
        try:
            with path.open("rb") as file:
                for noted in self.pieces:
                    found.append(hashlib.sha256(file.read(PIECE_BYTES)).hexdigest() == noted)
        except OSError:
            found += [False] * (len(self.pieces) - len(found))
        return found
