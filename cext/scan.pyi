import numpy as np
import numpy.typing as npt

def scan_strings(
    data: npt.NDArray[np.uint8], begin: int, n: int
) -> tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]: ...
