"""A context's state to and from bytes and files: the `state_*` methods.

The container and its checks are `engine.state`'s; this says what must be the same for a state to mean the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from engine.state import (
    SavedTokens,
    StateInfo,
    state_from_bytes,
    state_from_file,
    state_size,
    state_to_bytes,
    state_to_file,
)
from engine.types import I32Array

if TYPE_CHECKING:
    from engine.memory import Memory
    from engine.model import Model


class StateMixin(ABC):
    """The state methods of a context; `Context` is the one user."""

    @abstractmethod
    def get_model(self) -> Model:
        """The model."""

    @abstractmethod
    def get_kv_self(self) -> Memory:
        """The live memory."""

    @abstractmethod
    def adapters_signature(self) -> str:
        """A text that differs where active adapters make other numbers."""

    def state_info(self) -> StateInfo:
        """What a saved state must have been made with to be loaded here."""
        model = self.get_model()
        return StateInfo(model.fingerprint, f"adapters={self.adapters_signature()}", model.arch.name)

    def state_get_size(self) -> int:
        """Bytes of the state of all sequences."""
        return state_size(self.state_info(), self.get_kv_self(), None)

    def state_get_data(self) -> bytes:
        """The state of all sequences."""
        return state_to_bytes(self.state_info(), self.get_kv_self(), None)

    def state_set_data(self, data: bytes, convert_kv: bool = False) -> int:
        """Replace all sequences; returns the bytes read.

        Args:
            convert_kv: take keys and values that were kept in other cache types, and convert them.

        Raises: StateFileError kinds, ContextFullError: nothing changed.
        """
        state_from_bytes(data, self.state_info(), self.get_kv_self(), None, convert_kv)
        return len(data)

    def state_seq_get_size(self, seq_id: int) -> int:
        """Bytes of the state of one sequence."""
        return state_size(self.state_info(), self.get_kv_self(), seq_id)

    def state_seq_get_data(self, seq_id: int) -> bytes:
        """The state of one sequence."""
        return state_to_bytes(self.state_info(), self.get_kv_self(), seq_id)

    def state_seq_set_data(self, seq_id: int, data: bytes, convert_kv: bool = False) -> int:
        """Replace one sequence, whichever it was saved from; returns the bytes read. Else as `state_set_data`.

        Raises: StateFileError kinds, ContextFullError: nothing changed.
        """
        state_from_bytes(data, self.state_info(), self.get_kv_self(), seq_id, convert_kv)
        return len(data)

    def state_save_file(self, path: str | Path, tokens: Sequence[int] | I32Array = (), sampler: bytes = b"") -> int:
        """Write all sequences, with the tokens that made them; returns the bytes written. Raises: OSError."""
        return self._save(path, None, tokens, sampler)

    def state_load_file(self, path: str | Path, convert_kv: bool = False) -> SavedTokens:
        """Replace all sequences by a file's, also by a session of llama.cpp; returns what stood beside them.

        Else as `state_set_data`. llama.cpp's file must come from the same model: it tells only the architecture.
        """
        return state_from_file(path, self.state_info(), self.get_kv_self(), None, convert_kv)

    def state_seq_save_file(
        self, path: str | Path, seq_id: int, tokens: Sequence[int] | I32Array = (), sampler: bytes = b""
    ) -> int:
        """Write one sequence, with the tokens that made it; returns the bytes written. Raises: OSError."""
        return self._save(path, seq_id, tokens, sampler)

    def state_seq_load_file(self, path: str | Path, dest_seq_id: int, convert_kv: bool = False) -> SavedTokens:
        """Replace one sequence by a file's, also by a sequence of llama.cpp; returns what stood beside it.

        Else as `state_load_file`.
        """
        return state_from_file(path, self.state_info(), self.get_kv_self(), dest_seq_id, convert_kv)

    def _save(self, path: str | Path, seq_id: int | None, tokens: Sequence[int] | I32Array, sampler: bytes) -> int:
        beside = SavedTokens(np.asarray(tokens, dtype=np.int32), sampler)
        return state_to_file(path, self.state_info(), self.get_kv_self(), seq_id, beside)
