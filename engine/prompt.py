"""From messages to turns: the chat template's text, cut at the borders of the messages, as token ids.

Stands between the chat template and `engine.session`. The template renders the conversation twice, once with marks in
place of the texts, so that it is known which part of the text belongs to which message; whatever a template does
beyond putting text around messages is noticed, and the whole prompt is then one turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from engine.errors import ChatTemplateError
from engine.turns import Turn

OPENING_KEY = "opening"
"""Key of what the template puts before the first message (a start token, a system prompt of its own); it is pinned."""

N_TEXTS_KEPT = 1024


class Template(Protocol):
    """What is needed of a chat template; `engine.chat.ChatTemplate` has it."""

    def render(self, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        """The text of the conversation. Raises: ChatTemplateError."""


class Encoder(Protocol):
    """What is needed of a tokenizer; `engine.tokenizer.Tokenizer` has it."""

    add_bos: bool

    @property
    def bos_token_id(self) -> int | None:
        """The token that starts a text."""

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """The ids of a text."""

    def is_special(self, token: int) -> bool:
        """Whether it is a control token."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        key: names the message, the same each time.
        role: "system", "user" or "assistant".
        tokens: ids the model made of it, used again as they are; () to tokenise the text.
        pinned: it never leaves the context.
    """

    key: str
    role: str
    text: str
    tokens: tuple[int, ...] = ()
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """A message's share of the rendered text: head + text + tail."""

    head: str
    text: str
    tail: str
    is_changed: bool  # the template took other words than the message has


class PromptBuilder:
    """Makes turns of conversations for one model.

    Thread: one at a time.
    """

    def __init__(self, template: Template, tokenizer: Encoder) -> None:
        self._template = template
        self._tokenizer = tokenizer
        self._heads = _probe_heads(template)
        self._encode = lru_cache(N_TEXTS_KEPT)(self._encode_text)

    def turns(self, messages: Sequence[Message], reply_key: str) -> list[Turn]:
        """Return the turns of a conversation and, as the last one, the opening of the reply to it.

        The message to be answered is pinned: a question that leaves before its reply is no question.

        Args:
            messages: from the first to the one to be answered, at least one.
            reply_key: key of the reply's turn.

        Raises: ChatTemplateError: the template does not work with these messages.
        """
        whole = self._render(messages, add_generation_prompt=True)
        plain = self._render(messages, add_generation_prompt=False)
        parts = self._parts(messages, plain) if whole.startswith(plain) else None
        if parts is None:
            return [Turn(reply_key, self._with_bos(self._encode(whole, "")))]
        before, head = self._split_opening(messages[0], parts[0])
        parts[0] = replace(parts[0], head=head)
        turns = [Turn(OPENING_KEY, self._encode(before, ""), pinned=True)] if before else []
        turns += [self._turn(message, part) for message, part in zip(messages, parts, strict=True)]
        turns[0] = replace(turns[0], tokens=self._with_bos(turns[0].tokens))
        turns[-1] = replace(turns[-1], pinned=True)
        return [*turns, Turn(reply_key, self._encode(whole[len(plain) :], ""))]

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        as_dicts = [{"role": message.role, "content": message.text} for message in messages]
        return self._template.render(as_dicts, add_generation_prompt=add_generation_prompt)

    def _parts(self, messages: Sequence[Message], text: str) -> list[_Part] | None:
        """Return each message's share of the text, or None where the template does more than put text around them."""
        between = _between(self._template, [message.role for message in messages])
        if between is None or not text.startswith(between[0]):
            return None
        at = len(between[0])
        head, parts = between[0], []
        for i, message in enumerate(messages):
            found = next((c for c in _candidates(message) if text.startswith(c + between[i + 1], at)), None)
            if found is None:
                return None
            at += len(found) + len(between[i + 1])
            is_last = i + 1 == len(messages)
            tail, next_head = (between[-1], "") if is_last else self._cut(between[i + 1], messages[i + 1].role)
            parts.append(_Part(head, found, tail, found.strip() != message.text.strip()))
            head = next_head
        return parts if at == len(text) else None

    def _cut(self, between: str, next_role: str) -> tuple[str, str]:
        """Cut what stands between two messages into the tail of the one and the head of the next."""
        head = self._heads.get(next_role, "")
        if head and between.endswith(head):
            return between[: -len(head)], head
        return "", between

    def _split_opening(self, message: Message, part: _Part) -> tuple[str, str]:
        """Cut what stands before the first message from its own head; a system prompt keeps all of it."""
        head = self._heads.get(message.role, "")
        if message.role == "system" or not head or not part.head.endswith(head):
            return "", part.head
        return part.head[: -len(head)], head

    def _turn(self, message: Message, part: _Part) -> Turn:
        head, tail = self._encode(part.head, ""), self._encode(part.tail, "")
        if message.tokens and not part.is_changed:
            return Turn(message.key, (*head, *message.tokens, *tail), message.pinned)
        tokens = self._encode(part.head + part.text + part.tail, part.text)
        if not tokens:
            tokens = (*head, *self._tokenizer.encode(part.text, add_special=False), *tail)
        return Turn(message.key, tokens, message.pinned)

    def _encode_text(self, text: str, inner: str) -> tuple[int, ...]:
        """Return the ids of template text; () where `inner`, which a person wrote, would be read as control tokens."""
        encode, is_special = self._tokenizer.encode, self._tokenizer.is_special
        if inner and any(is_special(token) for token in encode(inner, add_special=False, parse_special=True)):
            return ()
        return tuple(encode(text, add_special=False, parse_special=True))

    def _with_bos(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        bos = self._tokenizer.bos_token_id
        return (bos, *tokens) if self._tokenizer.add_bos and bos is not None and tokens[:1] != (bos,) else tokens


def _between(template: Template, roles: Sequence[str]) -> list[str] | None:
    """Return what a template puts before, between and behind messages with these roles; None where it cannot be told.

    Returns: n + 1 texts for n messages.
    """
    marks = [f"\ue000{i}\ue001" for i in range(len(roles))]
    messages = [{"role": role, "content": mark} for role, mark in zip(roles, marks, strict=True)]
    try:
        rest = template.render(messages, add_generation_prompt=False)
    except ChatTemplateError:
        return None
    between = []
    for mark in marks:
        before, found, rest = rest.partition(mark)
        if not found:
            return None
        between.append(before)
    between.append(rest)
    return None if any("\ue000" in text for text in between) else between


def _probe_heads(template: Template) -> dict[str, str]:
    """Return what a template puts before the text of a later message of each role."""
    heads: dict[str, str] = {}
    roles: list[str] = []
    tail = ""
    for role in ("user", "assistant", "user"):
        roles.append(role)
        between = _between(template, roles)
        if between is None:
            break
        if len(roles) > 1 and between[-2].startswith(tail):
            heads[role] = between[-2][len(tail) :]
        tail = between[-1]
    return heads


def _candidates(message: Message) -> Iterator[str]:
    """Yield the forms in which templates put a message's text."""
    yield message.text
    yield message.text.strip()
    _, found, after = message.text.rpartition("</think>")
    if found:
        yield after.lstrip("\n")
        yield after.strip()
