"""What the kernel tests share: the instruction sets this CPU can run, and the measure of error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cext.kernel_rows import isa_best

ISA_NAMES = {0: "scalar", 1: "avx2", 2: "avx512"}
ISAS = tuple(range(isa_best() + 1))


def nmse(got: npt.NDArray[np.float32], want: npt.NDArray[np.float64] | npt.NDArray[np.float32]) -> float:
    """Mean squared error over mean square; infinite where `got` is not finite."""
    if not np.isfinite(got).all():
        return float("inf")
    error, size = got.astype(np.float64) - want, np.square(want, dtype=np.float64).sum()
    return float(np.square(error).sum() / size) if size else float(np.square(error).sum())
