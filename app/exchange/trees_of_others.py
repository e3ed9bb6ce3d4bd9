"""Chats of programs that keep a tree: ChatGPT, Open WebUI, the web page of llama.cpp, LM Studio, SillyTavern.

Source: fields as their exports show them; ARCHITECTURE.md, "Import and export".
"""

from __future__ import annotations

from app.exchange.fields import (
    Fields,
    content_of,
    fields,
    items,
    key_of,
    number_of,
    role_of,
    seconds_of,
    text_of,
)
from app.exchange.grow import Node, grow
from app.storage.records import ChatTree


def chatgpt(chat: Fields) -> ChatTree | None:
    """Return a chat of `conversations.json`; hidden and system messages, and those of tools, are left out."""
    nodes = []
    for key, value in fields(chat.get("mapping")).items():
        message = fields(value, "message")
        content = fields(message.get("content"))
        role = role_of(fields(message.get("author")).get("role"))
        is_hidden = fields(message.get("metadata")).get("is_visually_hidden_from_conversation") is True
        text = content_of(content.get("parts")) or text_of(content.get("text"))
        parent = key_of(fields(value).get("parent"))
        shown = None if role == "system" or is_hidden else role
        nodes.append(Node(key, parent, shown, text, seconds_of(message.get("create_time"))))
    used_at = seconds_of(chat.get("update_time")) or seconds_of(chat.get("create_time"))
    return grow(text_of(chat.get("title")), nodes, key_of(chat.get("current_node")), used_at)


def open_webui(chat: Fields) -> ChatTree | None:
    """Return a chat of Open WebUI."""
    inner = fields(chat.get("chat")) or chat
    history = fields(inner.get("history"))
    nodes = []
    system = text_of(inner.get("system")) or text_of(fields(inner.get("params")).get("system"))
    if system:
        nodes.append(Node("system prompt", "", "system", system, is_pinned=True))
    for key, value in fields(history.get("messages")).items():
        message = fields(value)
        parent = key_of(message.get("parentId")) or ("system prompt" if system else "")
        role, text = role_of(message.get("role")), content_of(message.get("content"))
        nodes.append(Node(key, parent, role, text, seconds_of(message.get("timestamp"))))
    title = text_of(inner.get("title")) or text_of(chat.get("title"))
    return grow(title, nodes, key_of(history.get("currentId")), seconds_of(chat.get("updated_at")))


def llama_ui(chat: Fields) -> ChatTree | None:
    """Return a chat of the web page of llama.cpp: its row and the rows of its messages."""
    row = fields(chat.get("conv"))
    nodes = []
    for value in items(chat.get("messages")):
        message = fields(value)
        role = None if message.get("type") == "root" else role_of(message.get("role"))
        key, parent = key_of(message.get("id")), key_of(message.get("parent"))
        nodes.append(Node(key, parent, role, content_of(message.get("content")), seconds_of(message.get("timestamp"))))
    return grow(text_of(row.get("name")), nodes, key_of(row.get("currNode")), seconds_of(row.get("lastModified")))


def lm_studio(chat: Fields) -> ChatTree | None:
    """Return a conversation of LM Studio; what follows a message follows the version of it that is selected."""
    nodes = []
    parent = ""
    system = text_of(chat.get("systemPrompt"))
    if system:
        nodes.append(Node("system", "", "system", system, is_pinned=True))
        parent = "system"
    for i, value in enumerate(items(chat.get("messages"))):
        versions = items(fields(value).get("versions"))
        selected = int(number_of(fields(value).get("currentlySelected")))
        keys = []
        for j, version in enumerate(versions):
            keys.append(f"{i}.{j}")
            role, text = role_of(fields(version).get("role")), _lm_studio_text(fields(version))
            nodes.append(Node(keys[-1], parent, role, text))
        if keys:
            parent = keys[selected] if 0 <= selected < len(keys) else keys[-1]
    return grow(text_of(chat.get("name")), nodes, parent, seconds_of(chat.get("createdAt")))


def _lm_studio_text(version: Fields) -> str:
    """Return the text of a version: its own content, or that of its steps."""
    contents = [version.get("content"), *(fields(step).get("content") for step in items(version.get("steps")))]
    return "\n\n".join(text for text in map(content_of, contents) if text)


def silly_tavern(lines: list[Fields]) -> ChatTree | None:
    """Return a chat of SillyTavern; what follows a message follows the swipe of it that is selected."""
    head, *rows = lines
    nodes = []
    parent = ""
    for i, row in enumerate(rows):
        swipes = [text_of(swipe) for swipe in items(row.get("swipes"))] or [text_of(row.get("mes"))]
        selected = int(number_of(row.get("swipe_id")))
        selected = selected if 0 <= selected < len(swipes) else len(swipes) - 1
        # The text shown may have been edited behind the back of its swipe.
        swipes[selected] = text_of(row.get("mes")) or swipes[selected]
        # System rows are remarks to the reader; they never were in the prompt.
        is_remark = row.get("is_system") is True
        role = "user" if row.get("is_user") is True else "assistant"
        for j, text in enumerate(swipes):
            nodes.append(Node(f"{i}.{j}", parent, None if is_remark else role_of(role), text))
        parent = f"{i}.{selected}"
    return grow(text_of(head.get("character_name")), nodes, parent)
