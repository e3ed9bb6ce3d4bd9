"""The window's command line: `causerie [MODEL] [--data DIR]`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from app.launch import launch


def main(argv: Sequence[str] | None = None) -> int:
    """Open the chat window, or what this place allows in its stead.

    Args:
        argv: arguments without the program's name; None takes those of the process.

    Returns: the exit status.
    """
    # The engine has threads of its own; numpy's would only take memory, and never end.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = argparse.ArgumentParser(prog="causerie", description="Chat with language models on your own computer.")
    parser.add_argument("model", nargs="?", default="", metavar="MODEL", help="a GGUF file to start with")
    parser.add_argument("--data", metavar="DIR", help="where chats and settings are kept (default: the user's folder)")
    arguments = parser.parse_args(argv)
    model = str(Path(arguments.model).expanduser().absolute()) if arguments.model else ""

    def open_window(names: Sequence[str]) -> int:
        from app.application import run
        from app.settings import data_folder

        return run(data_folder(arguments.data), names[0] if names else "")

    return launch([model] if model else [], open_window)


if __name__ == "__main__":
    sys.exit(main())
