"""The older `kv_cache_*` names of the `kv_self_*` functions: they warn, then do the same."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from engine.memory import kv_self

_Args = ParamSpec("_Args")
_Answer = TypeVar("_Answer")


def _renamed(call: Callable[_Args, _Answer]) -> Callable[_Args, _Answer]:
    old = call.__name__.replace("kv_self_", "kv_cache_")

    @functools.wraps(call)
    def warn_and_call(*args: _Args.args, **kwargs: _Args.kwargs) -> _Answer:
        warnings.warn(f"{old} is now called {call.__name__}", DeprecationWarning, stacklevel=2)
        return call(*args, **kwargs)

    warn_and_call.__name__ = old
    return warn_and_call


kv_cache_clear = _renamed(kv_self.kv_self_clear)
kv_cache_n_tokens = _renamed(kv_self.kv_self_n_tokens)
kv_cache_used_cells = _renamed(kv_self.kv_self_used_cells)
kv_cache_seq_rm = _renamed(kv_self.kv_self_seq_rm)
kv_cache_seq_cp = _renamed(kv_self.kv_self_seq_cp)
kv_cache_seq_keep = _renamed(kv_self.kv_self_seq_keep)
kv_cache_seq_add = _renamed(kv_self.kv_self_seq_add)
kv_cache_seq_div = _renamed(kv_self.kv_self_seq_div)
kv_cache_seq_pos_max = _renamed(kv_self.kv_self_seq_pos_max)
kv_cache_defrag = _renamed(kv_self.kv_self_defrag)
kv_cache_can_shift = _renamed(kv_self.kv_self_can_shift)
kv_cache_update = _renamed(kv_self.kv_self_update)
