"""A process that has everything imported and forks a child for each round, so that a round costs no start.

Reads lines of JSON [scenario, folder, seed]; answers with the child's process id, and a line when it has ended.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

from tests.crash.scenarios import SCENARIOS, Log


def main() -> None:
    """Fork for each line, until there are no more."""
    for line in sys.stdin:
        name, folder, seed = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                SCENARIOS[name](Path(folder), Log(Path(folder) / "log"), int(seed))
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    main()
