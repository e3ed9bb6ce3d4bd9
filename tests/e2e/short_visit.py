"""A short visit to the window, in a process of its own: `python -m tests.e2e.short_visit FOLDER MODEL PICTURE`."""

from __future__ import annotations

import sys
from pathlib import Path

from PySide6.QtWidgets import QApplication

from tests.e2e.person import Person


def visit(folder: Path, model: Path, picture: Path) -> None:
    """Send, stream, stop, close in the middle, reopen and go on."""
    app = QApplication(sys.argv[:1])
    person = Person(app, folder, model)
    person.program.settings.n_predict = 30
    person.ask("Name three rivers of France.")
    person.program.settings.n_predict = 2000
    person.begin("Tell a very long story about a ship.")
    person.click("send_button")
    person.wait(person.is_idle, "the stop")
    assert person.items()[-1].state == "stopped"
    person.program.controller.new_chat()
    person.begin("Tell a very long story about a ship.")
    assert person.close() < 5
    person.reopen()
    assert person.items()[-1].state == "stopped"
    n_used = person.program.controller.generation.n_used
    person.program.settings.n_predict = 20
    person.ask("Thank you.")
    assert person.program.controller.generation.n_reused == n_used
    person.photograph(picture)
    person.close()
    print(app.platformName())


if __name__ == "__main__":
    visit(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
