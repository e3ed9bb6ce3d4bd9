"""From messages to turns: what of a prompt belongs to which message, and what may never leave the context.

Stands between the chat template, which makes tokens of messages, and `engine.session`, which keeps the turns' cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from engine.chat import ChatTemplate
from engine.tokenizer import Tokenizer
from engine.turns import Turn

OPENING_KEY = "opening"
"""Key of what a template puts in front by itself (a start token, a system prompt of its own)."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation.

    Attributes:
        key: names the message, the same each time; not `OPENING_KEY`.
        role: "system", "user" or "assistant".
        tokens: ids the model made of it, used again as they are; () to tokenise the text.
        pinned: it never leaves the context.
    """

    key: str
    role: str
    text: str
    tokens: tuple[int, ...] = ()
    pinned: bool = False


class PromptBuilder:
    """Makes turns of conversations for one model.

    Thread: one at a time.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    def turns(self, messages: Sequence[Message], reply_key: str, now: datetime | None = None) -> list[Turn]:
        """Return the turns of a conversation; the last one is the opening of the reply.

        The message to be answered is pinned: a question that leaves before its reply is no question. So is what the
        template puts in front by itself, and the turn into which a template merges a pinned message.

        Args:
            messages: from the first to the one to be answered, at least one.
            reply_key: key of the reply's turn.
            now: the time that the template is told, the same for all of a conversation; None: the present.

        Raises: ChatTemplateError: the template does not work with these messages.
        """
        as_dicts = [{"role": message.role, "content": message.text} for message in messages]
        known = {i: message.tokens for i, message in enumerate(messages) if message.tokens}
        made = self._template.turns(self._tokenizer, as_dicts, known=known, now=now)
        turns = [Turn(OPENING_KEY, made.opening, pinned=True)] if made.opening else []
        owed = ""  # text of a pinned message that no turn has shown yet
        for message, tokens in zip(messages, made.messages, strict=True):
            owed = owed or (message.text.strip() if message.pinned else "")
            turns.append(Turn(message.key, tokens, message.pinned or bool(owed) or message is messages[-1]))
            if owed and owed in self._tokenizer.decode(tokens):
                owed = ""
        return [*turns, Turn(reply_key, made.generation)]
