"""From the messages or the text of a request to the turns of a prompt."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine.prompt import Message, PromptBuilder
from engine.server.fields import Fields
from engine.turns import Turn

REPLY_KEY = "reply"
SYSTEM_ROLES = ("system", "developer")
MAX_MESSAGES = 4096
KEEP_TOKENS = 64
"""The beginning of a text that never leaves, and the length of the parts that do."""


def read_messages(fields: Fields, context_shift: bool) -> list[Message]:
    """The messages of a conversation. Raises: BadRequestError.

    A message's key depends on all before it, so that a slot knows a conversation again, also after turns have left.
    Without context shift all are pinned: then none leaves.
    """
    objects = fields.objects("messages")
    if len(objects) > MAX_MESSAGES:
        fields.fail("messages", f"at most {MAX_MESSAGES}")
    messages, key = [], ""
    for message in objects:
        role, text = message.text("role"), read_content(message)
        message.refuse("tool_calls", "function_call")
        key = hashlib.blake2b(f"{key}\n{role}\n{text}".encode(), digest_size=12).hexdigest()
        is_system = role in SYSTEM_ROLES
        messages.append(Message(key, "system" if is_system else role, text, pinned=is_system or not context_shift))
    return messages


def read_content(message: Fields) -> str:
    """A message's text: one, or parts of text. Raises: BadRequestError."""
    content = message.get("content")
    if not isinstance(content, list):
        return message.text("content", "" if message.get("role") == "assistant" else None)
    texts = []
    for part in message.objects("content"):
        if part.text("type") != "text":
            part.fail("type", "this server takes parts of text only")
        texts.append(part.text("text"))
    return "".join(texts)


def turns_of_chat(prompts: PromptBuilder, messages: Sequence[Message]) -> list[Turn]:
    """The turns of a conversation. Raises: ChatTemplateError."""
    return prompts.turns(messages, REPLY_KEY)


def turns_of_text(ids: Sequence[int], context_shift: bool) -> list[Turn]:
    """A text that goes on, as turns: with context shift all but its beginning may leave, part by part."""
    if not context_shift:
        return [Turn("text", tuple(ids), pinned=True)]
    parts = [tuple(ids[i : i + KEEP_TOKENS]) for i in range(0, len(ids), KEEP_TOKENS)]
    turns: list[Turn] = []
    key = ""
    for part in parts:
        key = hashlib.blake2b(f"{key}{part}".encode(), digest_size=12).hexdigest()
        turns.append(Turn(key, part, pinned=not turns))
    return turns
