"""What a person has chosen: one typed attribute per key, kept in an INI file of the data folder.

Read and written in the GUI thread only; a request to another thread carries the values it needs.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import platformdirs
from PySide6.QtCore import QByteArray, QObject, QSettings, Signal

from app.bridge.messages import EngineOptions, Overflow, Sampling

SCHEMA = 1
"""Number of the file's layout; a later program reads it to know what to convert."""

T = TypeVar("T")


def data_folder(override: str | None = None) -> Path:
    """Return the folder in which chats, sessions and settings are kept; it need not exist.

    Args:
        override: a folder given by hand (`--data`); else $CAUSERIE_DATA, else the system's place for such files.
    """
    chosen = override or os.environ.get("CAUSERIE_DATA")
    return Path(chosen).expanduser().absolute() if chosen else Path(platformdirs.user_data_dir("causerie", False))


class _Key(Generic[T]):
    """One key of the file as an attribute; what `parse` refuses (None) reads as the default."""

    def __init__(self, key: str, default: T, parse: Callable[[object], T | None]) -> None:
        self._key, self._default, self._parse = key, default, parse

    def __get__(self, settings: Settings, owner: type[Settings]) -> T:
        value = self._parse(settings.read(self._key))
        return self._default if value is None else value

    def __set__(self, settings: Settings, value: T) -> None:
        settings.write(self._key, value)


def _text(*allowed: str) -> Callable[[object], str | None]:
    return lambda value: value if isinstance(value, str) and (not allowed or value in allowed) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value))


def _number(lo: float, hi: float) -> Callable[[object], float | None]:
    def parse(value: object) -> float | None:
        try:
            number = float(str(value))
        except ValueError:
            return None
        return min(max(number, lo), hi) if math.isfinite(number) else None

    return parse


def _whole(lo: int, hi: int) -> Callable[[object], int | None]:
    number = _number(lo, hi)

    def parse(value: object) -> int | None:
        parsed = number(value)
        return None if parsed is None else int(parsed)

    return parse


def _blob(value: object) -> bytes | None:
    return bytes(value.data()) if isinstance(value, QByteArray) else value if isinstance(value, bytes) else None


def _texts(value: object) -> tuple[str, ...] | None:
    # An INI file reads a list of one item as that item.
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else None


class Settings(QObject):
    """The settings of one data folder.

    Attributes:
        path: the INI file.
        model_folders: folders whose models the picker lists, beside the built-in places.
        hub_endpoint: the hub that models are fetched from, when a person asks.
        last_model: path of the model to load at start; empty for the default one.
        last_chat: id of the chat that was open; 0 for a new one.
        n_ctx: tokens a new chat's context holds; 0 takes what the model was trained with, within reason.
        n_predict: longest reply, in tokens.
        n_threads: threads that compute; 0 takes the number of physical cores.
        kv_budget_mb: memory that all chats together may take; 0: half of what is free.
        disk_budget_mb: what session files may take of the disk; 0: 10 GB, or a tenth of what is free.
        is_kv_packed: session files keep keys and values in 8 bits, half the size and not bit for bit the same.
        overflow: what happens when the context of a new chat is full: "shift", "stop" or "summarise".
        system_prompt: what a new chat starts with.
        theme: "system", "light" or "dark".
        zoom: size of text against the system's, in per cent.
        window_geometry: as Qt saves it; empty before the first close.
        is_sidebar_visible: whether the list of chats is shown.

    Signals:
        changed(key): a value was written that differs from the one before.

    Thread: GUI thread.
    """

    changed = Signal(str)

    model_folders = _Key[tuple[str, ...]]("models/folders", (), _texts)
    hub_endpoint = _Key("models/hub", "https://huggingface.co", _text())
    last_model = _Key("models/last", "", _text())
    last_chat = _Key("chat/last", 0, _whole(0, 1 << 53))
    n_ctx = _Key("chat/n_ctx", 0, _whole(0, 1 << 20))
    n_predict = _Key("chat/n_predict", 2048, _whole(1, 1 << 20))
    n_threads = _Key("engine/n_threads", 0, _whole(0, 1024))
    kv_budget_mb = _Key("memory/budget_mb", 0, _whole(0, 1 << 24))
    disk_budget_mb = _Key("memory/disk_budget_mb", 0, _whole(0, 1 << 24))
    is_kv_packed = _Key("memory/packed_on_disk", False, _flag)
    overflow = _Key("chat/overflow", "shift", _text("shift", "stop", "summarise"))
    system_prompt = _Key("chat/system_prompt", "", _text())
    temperature = _Key("sampling/temperature", 0.8, _number(0.0, 5.0))
    top_k = _Key("sampling/top_k", 40, _whole(0, 1 << 20))
    top_p = _Key("sampling/top_p", 0.95, _number(0.0, 1.0))
    min_p = _Key("sampling/min_p", 0.05, _number(0.0, 1.0))
    repeat_penalty = _Key("sampling/repeat_penalty", 1.0, _number(0.1, 5.0))
    seed = _Key("sampling/seed", -1, _whole(-1, (1 << 32) - 1))
    theme = _Key("view/theme", "system", _text("system", "light", "dark"))
    zoom = _Key("view/zoom", 100, _whole(50, 300))
    window_geometry = _Key("view/geometry", b"", _blob)
    is_sidebar_visible = _Key("view/sidebar", True, _flag)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = path
        self._store = QSettings(str(path), QSettings.Format.IniFormat, self)
        if not self._store.contains("meta/schema"):
            self._store.setValue("meta/schema", SCHEMA)

    def engine_options(self) -> EngineOptions:
        """Return how the memory of chats is kept, as one value for a request."""
        return EngineOptions(self.kv_budget_mb << 20, "q8_0" if self.is_kv_packed else "")

    def overflow_policy(self) -> Overflow:
        """Return what happens when the context of a new chat is full."""
        match self.overflow:
            case "stop":
                return "stop"
            case "summarise":
                return "summarise"
        return "shift"

    def sampling(self) -> Sampling:
        """Return how tokens are chosen, as one value for a request."""
        return Sampling(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            seed=None if self.seed < 0 else self.seed,
        )

    def read(self, key: str) -> object:
        """Return a key's value as the file has it, None where it has none."""
        value: object = self._store.value(key)
        return value

    def write(self, key: str, value: object) -> None:
        """Store a key's value; `changed` follows where it differs."""
        stored: object = value
        if isinstance(value, bytes):
            stored = QByteArray(value)
        elif isinstance(value, tuple):
            stored = list(value)
        if self.read(key) != stored:
            self._store.setValue(key, stored)
            self.changed.emit(key)

    def sync(self) -> None:
        """Write what is pending to the file."""
        self._store.sync()
