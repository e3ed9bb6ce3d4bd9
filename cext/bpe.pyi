from typing import Protocol

import numpy as np
import numpy.typing as npt

class _Strings(Protocol):
    @property
    def blob(self) -> npt.NDArray[np.uint8]: ...
    @property
    def offsets(self) -> npt.NDArray[np.uint64]: ...
    @property
    def lengths(self) -> npt.NDArray[np.uint64]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> bytes: ...

class MergeError(ValueError):
    index: int
    def __init__(self, index: int) -> None: ...

class TokenizerCore:
    @property
    def n_vocab(self) -> int: ...
    def cut(self, text: bytes, parse_special: bool) -> list[tuple[int, int, int]]: ...
    def encode(self, text: bytes, parse_special: bool, is_first: bool = True) -> list[int]: ...
    def decode(self, ids: npt.NDArray[np.int32], with_special: bool) -> bytes: ...
    def text(self, token: int) -> bytes: ...
    def piece(self, token: int) -> bytes: ...

class BpeCore(TokenizerCore):
    def __init__(
        self,
        texts: _Strings,
        types: npt.NDArray[np.uint8],
        strips: npt.NDArray[np.uint8] | None,
        merges: _Strings,
        patterns: _Strings,
        *,
        byte_level: bool,
        ignore_merges: bool = False,
        whole_newlines: bool = False,
    ) -> None: ...
    def split(self, text: bytes) -> list[bytes]: ...

class SpmCore(TokenizerCore):
    def __init__(
        self,
        texts: _Strings,
        types: npt.NDArray[np.uint8],
        strips: npt.NDArray[np.uint8] | None,
        scores: npt.NDArray[np.float32],
        *,
        add_space_prefix: bool,
        unknown: int,
    ) -> None: ...

class WpmCore(TokenizerCore):
    def __init__(
        self,
        texts: _Strings,
        types: npt.NDArray[np.uint8],
        strips: npt.NDArray[np.uint8] | None,
        *,
        unknown: int,
    ) -> None: ...

class UgmCore(TokenizerCore):
    def __init__(
        self,
        texts: _Strings,
        types: npt.NDArray[np.uint8],
        strips: npt.NDArray[np.uint8] | None,
        scores: npt.NDArray[np.float32],
        charsmap: npt.NDArray[np.uint8] | None,
        *,
        add_space_prefix: bool,
        remove_extra_whitespaces: bool,
        unknown: int,
    ) -> None: ...

class RwkvCore(TokenizerCore):
    def __init__(
        self,
        texts: _Strings,
        types: npt.NDArray[np.uint8],
        strips: npt.NDArray[np.uint8] | None,
        *,
        unknown: int,
    ) -> None: ...

def find_texts(texts: _Strings, names: _Strings) -> list[int]: ...
