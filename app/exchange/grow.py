"""Messages that name their parents, made into a tree that the store can keep."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass

from app.bridge.messages import Role
from app.exchange.errors import ExchangeError
from app.storage.records import ChatRecord, ChatTree, MessageRecord, TreeMessage

MAX_MESSAGES = 200_000


@dataclass(frozen=True, slots=True)
class Node:
    """One message of a file.

    Attributes:
        key, parent: names inside the file; a parent of "" or one that is not there: none.
        role: None for what is left out; its children then follow its parent.
        created_at: seconds since the epoch, 0 where it is not known.
    """

    key: str
    parent: str
    role: Role | None
    text: str
    created_at: float = 0.0
    is_pinned: bool = False


def grow(title: str, nodes: list[Node], current: str = "", used_at: float = 0.0) -> ChatTree | None:
    """Return the tree of a file's messages, None where none is left.

    Args:
        title: of the chat; it may be empty.
        current: key of the last message that was shown; the last of the file where that is not known.
        used_at: seconds since the epoch, 0 where it is not known.
    Raises: ExchangeError: for more than `MAX_MESSAGES`.
    """
    if len(nodes) > MAX_MESSAGES:
        raise ExchangeError(f"One of its chats has more than {MAX_MESSAGES} messages.")
    by_key = {node.key: node for node in nodes}
    kept = {key: node for key, node in by_key.items() if node.role is not None and node.text.strip()}
    if not kept:
        return None
    above: dict[str, str] = {}
    parents = {key: _kept_from(node.parent, by_key, kept, above) for key, node in kept.items()}
    ids = {key: i + 1 for i, key in enumerate(_order(parents))}
    now = time.time()
    leaf = _kept_from(current, by_key, kept, above) or next(reversed(kept))
    chat = ChatRecord(0, " ".join(title.split()), used_at or now, leaf_id=ids[leaf])
    messages = []
    for key, i in ids.items():
        node = kept[key]
        parent_id = ids.get(parents[key])
        # In a circle, the message that is met first begins the branch.
        parent_id = parent_id if parent_id is not None and parent_id < i else None
        record = MessageRecord(i, 0, parent_id, node.role or "user", node.text, is_pinned=node.is_pinned)
        messages.append(TreeMessage(record, node.created_at or used_at or now))
    return ChatTree(chat, tuple(messages))


def line(title: str, turns: list[tuple[Role | None, str]], used_at: float = 0.0) -> ChatTree | None:
    """Return the tree of messages that follow each other, None where none is left."""
    nodes: list[Node] = []
    for i, (role, text) in enumerate(turns):
        nodes.append(Node(str(i), str(i - 1) if i else "", role, text, is_pinned=role == "system"))
    return grow(title, nodes, used_at=used_at)


def _kept_from(key: str, by_key: dict[str, Node], kept: dict[str, Node], above: dict[str, str]) -> str:
    """Return the key of the first message that is kept, from a node upwards; "" where there is none.

    Args:
        key: of the node; by_key: all nodes; kept: those that are kept.
        above: what was found for nodes that are left out, so that each is passed once only.
    """
    passed: dict[str, None] = {}
    while key in by_key and key not in kept and key not in above and key not in passed:
        passed[key] = None
        key = by_key[key].parent
    found = key if key in kept else above.get(key, "")
    above.update(dict.fromkeys(passed, found))
    return found


def _order(parents: dict[str, str]) -> list[str]:
    """Return the keys, each behind its parent, otherwise in the order of the file."""
    children: dict[str, list[str]] = defaultdict(list)
    for key, parent in parents.items():
        children[parent].append(key)
    done: dict[str, None] = {}
    for start in [*children[""], *parents]:
        todo = [start]
        for key in todo:
            if key not in done:
                done[key] = None
                todo += children.get(key, ())
    return list(done)
