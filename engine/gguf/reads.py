"""Typed reads of metadata: a value of the wrong type or out of range is an error that names its key.

The base of `GGUFFile`; what `hparams`, the tokenizers and the adapters read a file through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import HparamError
from engine.gguf.values import GGUFValue, StringArray
from engine.types import F32Array, I64Array

T = TypeVar("T")
S = TypeVar("S", bound=np.generic)


class _Required(Enum):
    REQUIRED = "required"


REQUIRED = _Required.REQUIRED
"""The default that means: the key must be there."""
Required = Literal[_Required.REQUIRED]


class MetadataReads:
    """Reads of `metadata` by key and type.

    Every read takes a default for a key that is not there, of any type; without one the key is required. All raise
    HparamError: where a required key is missing, or the value is of another type or out of range.

    Attributes:
        path: the file, for messages.
        metadata: what it says, in file order.
    """

    path: Path
    metadata: Mapping[str, GGUFValue]

    def has(self, key: str) -> bool:
        """Whether the file says anything under that key."""
        return key in self.metadata

    def get_int(self, key: str, default: T | Required = REQUIRED, *, lo: int = 0, hi: int = 2**31 - 1) -> int | T:
        """An integer in [lo, hi]."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        if not lo <= value <= hi:
            raise HparamError(key, f"{value:,} is not within {lo:,} to {hi:,}", self.path)
        return value

    def get_float(self, key: str, default: T | Required = REQUIRED) -> float | T:
        """A finite number."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        if not math.isfinite(value):
            raise HparamError(key, f"{value} is not finite", self.path)
        return float(value)

    def get_bool(self, key: str, default: T | Required = REQUIRED) -> bool | T:
        """A truth value."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "a bool")
        return value

    def get_str(self, key: str, default: T | Required = REQUIRED) -> str | T:
        """A text."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def get_ints(self, key: str, default: T | Required = REQUIRED) -> I64Array | T:
        """i64[n], read only, from an array of integers or bools; a single one gives n = 1."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        items = self._numbers(key, value, "integers")
        if items.dtype.kind not in "iub":
            raise self._wrong(key, value, "an array of integers")
        if items.dtype == np.uint64 and items.size and int(items.max()) > 2**63 - 1:
            raise HparamError(key, "an integer beyond 63 bits", self.path)
        return _frozen(items.astype(np.int64))

    def get_floats(self, key: str, default: T | Required = REQUIRED) -> F32Array | T:
        """f32[n], read only, from an array of numbers; a single one gives n = 1."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        items = self._numbers(key, value, "numbers")
        if items.dtype.kind not in "iuf":
            raise self._wrong(key, value, "an array of numbers")
        with np.errstate(over="ignore"):
            return _frozen(items.astype(np.float32))

    def get_strings(self, key: str, default: T | Required = REQUIRED) -> StringArray | T:
        """An array of strings."""
        value = self.metadata.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, np.ndarray) and value.size == 0:
            return StringArray.from_strings([])
        if not isinstance(value, StringArray):
            raise self._wrong(key, value, "an array of strings")
        return value

    @property
    def architecture(self) -> str:
        """`general.architecture`."""
        return self.get_str("general.architecture")

    def _default(self, key: str, default: T | Required) -> T:
        if isinstance(default, _Required):
            raise HparamError(key, "is missing", self.path)
        return default

    def _wrong(self, key: str, value: GGUFValue, expected: str) -> HparamError:
        if isinstance(value, np.ndarray):
            got = f"an array of {value.size:,} {value.dtype.name}"
        elif isinstance(value, StringArray):
            got = f"an array of {len(value):,} strings"
        else:
            got = f"{type(value).__name__} {value!r:.40}"
        return HparamError(key, f"{expected} expected, got {got}", self.path)

    def _numbers(self, key: str, value: GGUFValue, expected: str) -> npt.NDArray[np.generic]:
        if isinstance(value, str | StringArray):
            raise self._wrong(key, value, f"an array of {expected}")
        return np.atleast_1d(np.asarray(value))


def _frozen(array: npt.NDArray[S]) -> npt.NDArray[S]:
    array.flags.writeable = False
    return array
