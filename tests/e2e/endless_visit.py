"""A visit that ends only by a kill: `python -m tests.e2e.endless_visit FOLDER MODEL` prints what is shown as it grows."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from PySide6.QtWidgets import QApplication

from tests.e2e.person import Person


def visit(folder: Path, model: Path) -> None:
    """Have one short reply, then a long one, and say what stands in the window."""
    person = Person(QApplication(sys.argv[:1]), folder, model)
    person.program.settings.n_predict = 20
    person.ask("Name three rivers of France.")
    person.look(0.5)
    person.program.settings.n_predict = 4000
    person.program.settings.sync()
    person.write("Tell a very long story about a ship.")
    while True:
        os.write(1, (json.dumps(person.items()[-1].text) + "\n").encode())
        person.look(0.02)


if __name__ == "__main__":
    visit(Path(sys.argv[1]), Path(sys.argv[2]))
