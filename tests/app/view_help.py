"""Models filled by hand, and widgets made of them, for the tests of the view."""

from __future__ import annotations

from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.models import ConversationModel, MessageItem
from app.theme import Theme, ThemeMode
from app.widgets.conversation import ConversationView

REPLY = """A short plan. It uses `sqlite3`, and it is **safe** to run *twice*.

## What it does

1. Opens the database.
2. Applies each migration:
   - in one transaction,
   - with a backup.
3. Writes the version.

```python
def migrate(path, target=7):
    return target  # a comment
```

> Never change a migration.

| Version | Rows |
|--------:|:-----|
| 5 | 12,400 |
| 6 | 310 |

See [the manual](https://sqlite.org/pragma.html) for more. Raw <b>HTML</b> stays text.
"""


def light_theme() -> Theme:
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    return Theme(app, ThemeMode.LIGHT)


def make_items(n: int) -> list[MessageItem]:
    """Return `n` messages, questions and replies in turn."""
    return [
        MessageItem(i + 1, "user", f"Question {i}: what now?") if i % 2 == 0 else MessageItem(i + 1, "assistant", REPLY)
        for i in range(n)
    ]


def make_view(qtbot: QtBot, items: list[MessageItem], width: int = 900, height: int = 600) -> ConversationView:
    """Return a view of a conversation that is on the (offscreen) screen."""
    conversation = ConversationModel()
    view = ConversationView(conversation, light_theme())
    conversation.setParent(view)
    view._theme.setParent(view)
    qtbot.addWidget(view)
    view.resize(width, height)
    view.show()
    conversation.load(1, "A chat", items)
    return view


def model_of(view: ConversationView) -> ConversationModel:
    return view._conversation
