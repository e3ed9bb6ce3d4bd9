"""Reads the headers of the models at hand, for the picker; in a thread of its own, since folders can be slow.

Imported in that thread only, since it reads the engine's modules.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from app.bridge.entries import judge_entry, read_entry
from app.bridge.free_memory import free_memory_bytes
from app.bridge.header_cache import Key, Known, load_cache, sample_digest, save_cache
from app.bridge.messages import ModelEntry, ModelsFound
from app.bridge.places import all_models
from app.bridge.programs import FoundFile, Home
from engine.estimate import expected_tok_s, read_rate

log = logging.getLogger(__name__)

NEWS_S = 1.0
"""Time between two lists while models are judged."""


class Catalogue:
    """Entries of the files read before, so that a second look at hundreds of models costs little.

    Args:
        cache_path: where they are kept; None: nowhere.
        home: whose programs are looked for.

    Thread: catalogue thread.
    """

    def __init__(self, cache_path: Path | None = None, home: Home | None = None) -> None:
        self._cache_path, self._home = cache_path, home
        self._known: dict[Key, Known] = load_cache(cache_path) if cache_path is not None else {}
        self._read_rate = 0.0

    def scan(self, folders: Iterable[str], is_cancelled: Callable[[], bool]) -> Iterator[ModelsFound]:
        """Yield an entry for every model file, damaged ones with what is wrong with them.

        The first list says what headers say; the following ones say also what each model would take.
        """
        known: dict[Key, Known] = {}
        for found in all_models(folders, self._home or Home.here()):
            if is_cancelled():
                return
            key = _key_of(found)
            if key is not None:
                known[key] = self._known.get(key) or Known(read_entry(found))
        has_news = known != self._known
        self._known = known
        self._tell_copies_apart()
        yield self._list()
        told_at = time.monotonic()
        for key, before in list(self._known.items()):
            if before.is_judged:
                continue
            judged = entry = before.entry
            if entry is not None and not entry.problem:
                judged = judge_entry(entry, is_cancelled)
            if is_cancelled():
                break
            self._known[key] = replace(self._known[key], entry=judged, is_judged=True)
            has_news = True
            if time.monotonic() - told_at > NEWS_S:
                told_at = time.monotonic()
                yield self._list()
        if has_news:
            self._save()
        if has_news and not is_cancelled():
            yield self._list()

    def _list(self) -> ModelsFound:
        """One entry for each content: the first file found of several that are the same."""
        entries: dict[str, ModelEntry] = {}
        for key, known in self._known.items():
            if known.entry is not None:
                entries.setdefault(known.digest or repr(key), self._with_rate(known.entry))
        return ModelsFound(tuple(entries.values()), free_memory_bytes())

    def _with_rate(self, entry: ModelEntry) -> ModelEntry:
        if not entry.active_bytes:
            return entry
        if not self._read_rate:
            self._read_rate = read_rate()
        return replace(entry, tok_s=expected_tok_s(entry.active_bytes, self._read_rate))

    def _tell_copies_apart(self) -> None:
        """Look into files of the same size, which may be the same model twice."""
        by_size: dict[int, list[Key]] = defaultdict(list)
        for key in self._known:
            by_size[key[1]].append(key)
        for keys in by_size.values():
            for key in keys if len(keys) > 1 else ():
                if not self._known[key].digest:
                    try:
                        digest = sample_digest(Path(key[0]), key[1])
                    except OSError:
                        continue
                    self._known[key] = replace(self._known[key], digest=digest)

    def _save(self) -> None:
        if self._cache_path is None:
            return
        try:
            save_cache(self._cache_path, self._known)
        except OSError as error:
            log.warning("headers of models not kept: %s", error)


def _key_of(found: FoundFile) -> Key | None:
    try:
        stat = found.path.stat()
    except (OSError, ValueError):
        return None
    return str(found.path), stat.st_size, stat.st_mtime_ns
