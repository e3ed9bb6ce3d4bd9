"""Chats on their way to files and from files: between the store and the thread that reads and writes."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QObject, Signal

from app.models.chat_list import ChatListModel, ChatRow
from app.models.open_chat import title_of
from app.models.ports import Store
from app.models.record_maker import RecordMaker
from app.storage.records import ChatTree, KeepTrees, ReadTrees, TreesKept, TreesRead
from app.storage.trees import moved

PRINTER = ""
"""Stands for a path where chats are to be printed."""


class Exchange(QObject):
    """Exports and imports.

    Signals:
        read_wanted(path): read a file of chats; `take_trees` answers.
        write_wanted(path, trees): write them to a file.
        print_wanted(trees): print them.
        taken_in(chat_ids): the chats of a file are kept now.

    Thread: GUI thread.
    """

    read_wanted = Signal(str)
    write_wanted = Signal(str, object)
    print_wanted = Signal(object)
    taken_in = Signal(object)

    def __init__(self, store: Store, make: RecordMaker, chats: ChatListModel, parent: QObject) -> None:
        super().__init__(parent)
        self._store, self._make, self._chats = store, make, chats

    def send_out(self, chat_ids: tuple[int, ...], path: str) -> None:
        """Write chats, or all where none is named, to a file, or print them (`PRINTER`)."""
        self._store.submit(ReadTrees(chat_ids, path))

    def take_trees(self, trees: tuple[ChatTree, ...]) -> None:
        """Keep the chats of a file as new ones."""
        kept = []
        for tree in trees:
            first = next((m.record.text for m in tree.messages if m.record.role == "user"), "")
            named = replace(tree.chat, title=tree.chat.title or title_of(first))
            first_id = self._make.take_ids(len(tree.messages) + 1)
            kept.append(moved(ChatTree(named, tree.messages), first_id))
        self._store.submit(KeepTrees(tuple(kept)))

    def on_store_event(self, event: TreesRead | TreesKept) -> None:
        """Take in what storage answers."""
        if isinstance(event, TreesKept):
            self._chats.set_rows((*self._chats.rows(), *map(ChatRow.of, event.chats)))
            self.taken_in.emit(tuple(chat.id for chat in event.chats))
        elif event.target == PRINTER:
            self.print_wanted.emit(event.trees)
        else:
            self.write_wanted.emit(event.target, event.trees)
