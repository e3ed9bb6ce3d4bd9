"""The one table of actions: menus, shortcuts and the help page are made from it, and nothing else defines one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, Flag, auto

from PySide6.QtCore import QCoreApplication, QObject, Signal
from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget


def QT_TRANSLATE_NOOP(context: str, text: str) -> str:
    """Mark a text for `pyside6-lupdate`, which knows this name; Qt's own returns an untyped object."""
    return text


class Menu(Enum):
    """The menus, in order; a value is the title."""

    CHAT = QT_TRANSLATE_NOOP("Actions", "&Chat")
    REPLY = QT_TRANSLATE_NOOP("Actions", "&Reply")
    MODEL = QT_TRANSLATE_NOOP("Actions", "&Model")
    VIEW = QT_TRANSLATE_NOOP("Actions", "&View")
    HELP = QT_TRANSLATE_NOOP("Actions", "&Help")


class When(Flag):
    """What must hold for an action to be enabled."""

    ALWAYS = 0
    CHAT_OPEN = auto()  # the open chat has a message
    REPLY_EXISTS = auto()  # the open chat has a reply
    BUSY = auto()  # the open chat's reply is being made
    IDLE = auto()  # it is not
    MODEL_READY = auto()
    DELETED = auto()  # something was deleted that can come back


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One action.

    Attributes:
        text: English text, translated in the context "Actions".
        keys: its shortcuts, the one shown first; portable names, so Ctrl is Cmd on macOS.
        slot: what carries it out, as a path of attributes from the window to a method without arguments.
        is_checkable: menus show whether it is in force; the window says so.
    """

    id: str
    menu: Menu
    text: str
    keys: tuple[str, ...]
    slot: str
    when: When = When.ALWAYS
    is_checkable: bool = False


ACTIONS: tuple[ActionSpec, ...] = (
    ActionSpec("new_chat", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "New chat"), ("Ctrl+N", "Ctrl+Shift+O"), "new_chat"),
    ActionSpec(
        "temporary_chat",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "New temporary chat"),
        ("Ctrl+Alt+N",),
        "controller.new_temporary_chat",
    ),
    ActionSpec("search", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Search chats"), ("Ctrl+K",), "search_chats"),
    ActionSpec(
        "find",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Find in this chat"),
        ("Ctrl+F",),
        "find_bar.open",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "find_next", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Next place"), ("F3",), "find_bar.next", When.CHAT_OPEN
    ),
    ActionSpec(
        "find_previous",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Place before"),
        ("Shift+F3",),
        "find_bar.previous",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "rename", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Rename chat"), ("F2",), "rename_chat", When.CHAT_OPEN
    ),
    ActionSpec(
        "delete",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Delete chat"),
        ("Ctrl+Shift+Backspace",),
        "delete_chat",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "undo_delete",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Bring back what was deleted"),
        ("Ctrl+Z",),
        "commands.undo_delete",
        When.DELETED,
    ),
    ActionSpec(
        "overflow_shift",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "When the context is full, let the oldest messages leave"),
        (),
        "commands.let_oldest_leave",
        is_checkable=True,
    ),
    ActionSpec(
        "overflow_summarise",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "When the context is full, summarise what leaves"),
        (),
        "commands.summarise_when_full",
        is_checkable=True,
    ),
    ActionSpec(
        "overflow_stop",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "When the context is full, stop and ask"),
        (),
        "commands.stop_when_full",
        is_checkable=True,
    ),
    ActionSpec(
        "empty_bin", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Empty the bin"), (), "commands.empty_bin", When.DELETED
    ),
    ActionSpec(
        "export_chat",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Export this chat…"),
        ("Ctrl+Shift+E",),
        "files.export_chat",
        When.CHAT_OPEN,
    ),
    ActionSpec("export_all", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Export all chats…"), (), "files.export_all"),
    ActionSpec(
        "export_character",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Export the character of this chat…"),
        (),
        "files.export_character",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "import_chats",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Import chats and characters…"),
        (),
        "files.import_chats",
    ),
    ActionSpec(
        "print_chat",
        Menu.CHAT,
        QT_TRANSLATE_NOOP("Actions", "Print this chat…"),
        ("Ctrl+P",),
        "files.print_chat",
        When.CHAT_OPEN,
    ),
    ActionSpec("quit", Menu.CHAT, QT_TRANSLATE_NOOP("Actions", "Quit"), ("Ctrl+Q",), "close"),
    ActionSpec("stop", Menu.REPLY, QT_TRANSLATE_NOOP("Actions", "Stop"), ("Esc",), "controller.stop", When.BUSY),
    ActionSpec(
        "regenerate",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Regenerate last reply"),
        ("Ctrl+R",),
        "controller.regenerate",
        When.REPLY_EXISTS | When.IDLE | When.MODEL_READY,
    ),
    ActionSpec(
        "replay",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Replay: make the reply as it was made"),
        (),
        "commands.replay",
        When.REPLY_EXISTS | When.IDLE | When.MODEL_READY,
    ),
    ActionSpec(
        "previous_version",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Version before"),
        ("Alt+Left",),
        "commands.previous_version",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "next_version",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Next version"),
        ("Alt+Right",),
        "commands.next_version",
        When.CHAT_OPEN,
    ),
    ActionSpec(
        "copy_reply",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Copy last reply"),
        ("Ctrl+Shift+C",),
        "copy_last_reply",
        When.REPLY_EXISTS,
    ),
    ActionSpec(
        "copy_code",
        Menu.REPLY,
        QT_TRANSLATE_NOOP("Actions", "Copy last code block"),
        ("Ctrl+Shift+;",),
        "copy_last_code",
        When.REPLY_EXISTS,
    ),
    ActionSpec("pick_model", Menu.MODEL, QT_TRANSLATE_NOOP("Actions", "Choose a model…"), ("Ctrl+L",), "pick_model"),
    ActionSpec("open_model", Menu.MODEL, QT_TRANSLATE_NOOP("Actions", "Open a model file…"), ("Ctrl+O",), "open_model"),
    ActionSpec(
        "inspector",
        Menu.MODEL,
        QT_TRANSLATE_NOOP("Actions", "What is in the context…"),
        ("Ctrl+I",),
        "dialogs.show_inspector",
        When.CHAT_OPEN,
    ),
    ActionSpec("memory", Menu.MODEL, QT_TRANSLATE_NOOP("Actions", "Memory of chats…"), (), "dialogs.show_memory"),
    ActionSpec(
        "sidebar",
        Menu.VIEW,
        QT_TRANSLATE_NOOP("Actions", "Show or hide chats"),
        ("Ctrl+B",),
        "toggle_sidebar",
        is_checkable=True,
    ),
    ActionSpec(
        "zoom_in", Menu.VIEW, QT_TRANSLATE_NOOP("Actions", "Larger text"), ("Ctrl++", "Ctrl+="), "theme.zoom_in"
    ),
    ActionSpec("zoom_out", Menu.VIEW, QT_TRANSLATE_NOOP("Actions", "Smaller text"), ("Ctrl+-",), "theme.zoom_out"),
    ActionSpec(
        "zoom_reset", Menu.VIEW, QT_TRANSLATE_NOOP("Actions", "Normal text size"), ("Ctrl+0",), "theme.zoom_reset"
    ),
    ActionSpec(
        "theme_system",
        Menu.VIEW,
        QT_TRANSLATE_NOOP("Actions", "Colours of the system"),
        (),
        "theme.use_system",
        is_checkable=True,
    ),
    ActionSpec(
        "theme_light",
        Menu.VIEW,
        QT_TRANSLATE_NOOP("Actions", "Light colours"),
        (),
        "theme.use_light",
        is_checkable=True,
    ),
    ActionSpec(
        "theme_dark", Menu.VIEW, QT_TRANSLATE_NOOP("Actions", "Dark colours"), (), "theme.use_dark", is_checkable=True
    ),
    ActionSpec(
        "shortcuts",
        Menu.HELP,
        QT_TRANSLATE_NOOP("Actions", "Keyboard shortcuts"),
        ("F1", "Ctrl+/"),
        "dialogs.show_shortcuts",
    ),
)


def translated(text: str) -> str:
    """Return a text of the table in the person's language."""
    return QCoreApplication.translate("Actions", text)


class Actions(QObject):
    """The table as `QAction`s of one window.

    Signals:
        triggered(slot): carry out this method.
    """

    triggered = Signal(str)

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self._group = QActionGroup(self)
        self._group.setExclusive(False)
        self._by_id: dict[str, QAction] = {}
        self._specs = {spec.id: spec for spec in ACTIONS}
        for spec in ACTIONS:
            action = QAction(translated(spec.text), self._group)
            action.setObjectName(spec.id)
            action.setCheckable(spec.is_checkable)
            action.setShortcuts([QKeySequence(key, QKeySequence.SequenceFormat.PortableText) for key in spec.keys])
            self._by_id[spec.id] = action
            window.addAction(action)
        self._group.triggered.connect(self._on_triggered)

    def action(self, action_id: str) -> QAction:
        """Return one action by its id."""
        return self._by_id[action_id]

    def fill(self, menu: QMenu, action_ids: Iterable[str]) -> None:
        """Add actions to a menu, an empty id as a separating line."""
        for action_id in action_ids:
            if action_id:
                menu.addAction(self._by_id[action_id])
            else:
                menu.addSeparator()

    def fill_all(self, menu: QMenu) -> None:
        """Add one submenu for each menu of the table."""
        for kind in Menu:
            submenu = menu.addMenu(translated(kind.value))
            for spec in ACTIONS:
                if spec.menu == kind:
                    submenu.addAction(self._by_id[spec.id])

    def update_enabled(self, holds: When) -> None:
        """Enable each action whose conditions all hold."""
        for action_id, action in self._by_id.items():
            action.setEnabled(self._specs[action_id].when in holds)

    def _on_triggered(self, action: QAction) -> None:
        self.triggered.emit(self._specs[action.objectName()].slot)
