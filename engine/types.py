"""Names for the values that pass between the engine's parts.

Stands below everything else in the engine; imports nothing of it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NewType

import numpy as np
import numpy.typing as npt

TokenId = NewType("TokenId", int)
SeqId = NewType("SeqId", int)
Pos = NewType("Pos", int)

U8Array = npt.NDArray[np.uint8]
I32Array = npt.NDArray[np.int32]
I64Array = npt.NDArray[np.int64]
F32Array = npt.NDArray[np.float32]
F64Array = npt.NDArray[np.float64]

F32Logits = npt.NDArray[np.float32]
"""f32[n_outputs, n_vocab]"""


class QuantType(IntEnum):
    """Tensor types by their GGUF numbers (`ggml_type`). Source: gguf.constants.GGMLQuantizationType."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
