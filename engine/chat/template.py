"""How messages become a prompt: the model's own chat template, or one for models that bring none.

`prompt` makes tokens of what is rendered here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import jinja2

from engine.chat.builtin import CHATML, CHATML_TOKENS, PLAIN
from engine.chat.marks import Message
from engine.chat.meter import Meter, TemplateLimitError, current_meter
from engine.chat.prompt import PrefixCache, Segment, Turns, make_segments, make_turns
from engine.chat.sandbox import TemplateEnvironment
from engine.errors import ChatTemplateError
from engine.gguf import GGUFFile
from engine.tokenizer import Tokenizer, TokenType

TemplateKind = Literal["file", "chatml", "plain"]

MAX_SOURCE = 65_536
"""Characters of a template: compiling as many takes up to a second. The longest known have 30 thousand."""
_KEY = "tokenizer.chat_template"

# What code that a template stands for may raise. MemoryError and RecursionError are as much its fault as the others.
_FAULTS = (
    jinja2.TemplateError, TemplateLimitError, ArithmeticError, AttributeError, LookupError, MemoryError, NameError,
    RuntimeError, StopIteration, SyntaxError, TypeError, ValueError,
)  # fmt: skip


class ChatTemplate:
    """A chat template, compiled when it is first rendered.

    Attributes:
        source: its text.
        kind: "file": the model's own; "chatml": the model has none, but ChatML's tokens; "plain": a base model.
        named: further templates of the model by name ("tool_use").
        variables: what every rendering knows: bos_token, eos_token and their like.

    Thread: any.
    """

    def __init__(
        self,
        source: str,
        *,
        kind: TemplateKind = "file",
        named: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.kind = source, kind
        self.named, self.variables = dict(named or {}), dict(variables or {})
        self._compiled: dict[str, jinja2.Template] = {}
        self._prefixes: dict[str, PrefixCache] = {}

    @classmethod
    def from_gguf(cls, gguf: GGUFFile, tokenizer: Tokenizer) -> ChatTemplate:
        """The template of a model file; ChatML where it has none but those tokens; else plain text."""
        prefix = f"{_KEY}."
        named = {
            key.removeprefix(prefix): value
            for key, value in gguf.metadata.items()
            if key.startswith(prefix) and isinstance(value, str)
        }
        source = gguf.get_str(_KEY, None) or named.get("default")
        special = {"bos_token": tokenizer.special.bos, "eos_token": tokenizer.special.eos}
        special |= {"unk_token": tokenizer.special.unk, "pad_token": tokenizer.special.pad}
        variables = {name: "" if token is None else tokenizer.token_text(token) for name, token in special.items()}
        if source:
            return cls(source, named=named, variables=variables)
        found = [tokenizer.find_token(text) for text in CHATML_TOKENS]
        if all(token is not None and tokenizer.token_type(token) is TokenType.CONTROL for token in found):
            return cls(CHATML, kind="chatml", variables=variables)
        return cls(PLAIN, kind="plain", variables=variables)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        now: datetime | None = None,
        **variables: object,
    ) -> str:
        """The prompt as text.

        Args:
            messages: each with "role" and "content", and what else the template reads.
            tools: functions that the model may call, as JSON schemas.
            add_generation_prompt: end with what makes the model reply.
            now: the time that templates are told, fixed for a conversation so that its prompts begin alike.
            variables: more names for the template ("enable_thinking").
        Raises: ChatTemplateError: it does not compile, refuses the messages, fails, or goes beyond a limit.
        """
        meter = Meter(now)
        token = current_meter.set(meter)
        try:
            context = {
                "messages": [dict(message) for message in messages],
                "tools": list(tools) if tools else None,
                "add_generation_prompt": add_generation_prompt,
                **self.variables,
                **variables,
            }
            meter.measure(context)
            return self._template(has_tools=bool(tools)).render(context)
        except _FAULTS as error:
            raise ChatTemplateError(_reason(error)) from error
        finally:
            current_meter.reset(token)

    def turns(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        known: Mapping[int, Sequence[int]] | None = None,
        **variables: object,
    ) -> Turns:
        """The prompt as tokens, by message.

        Control tokens are those that the template writes; the same text in a message is only text.

        Args:
            tokenizer: of the model.
            messages: as `render` takes them.
            tools: as `render` takes them.
            add_generation_prompt: end with what makes the model reply.
            known: the tokens of messages that the model wrote, by index: used instead of encoding their text again.
            variables: `now`, and more names for the template.
        Raises: ChatTemplateError.
        """
        render, cache = self._renderer(tools, variables)
        return make_turns(render, cache, tokenizer, messages, add_generation_prompt, known or {})

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> list[int]:
        """The prompt as tokens: those of `turns`, one behind the other. Raises: ChatTemplateError."""
        return self.turns(tokenizer, messages, tools, add_generation_prompt, **variables).tokens()  # type: ignore[arg-type]

    def segments(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, **variables: object
    ) -> list[Segment]:
        """The prompt as text, in parts: the template's and the messages' own. Raises: ChatTemplateError."""
        render, cache = self._renderer(None, variables)
        return make_segments(render, cache, messages, lambda text: [(text, None)], add_generation_prompt)

    def _renderer(
        self, tools: Sequence[Mapping[str, object]] | None, variables: Mapping[str, object]
    ) -> tuple[Callable[[Sequence[Message], bool], str], PrefixCache]:
        def render(messages: Sequence[Message], add_generation_prompt: bool) -> str:
            return self.render(messages, tools, add_generation_prompt, **variables)  # type: ignore[arg-type]

        key = json.dumps([tools, variables], sort_keys=True, default=str)
        if key not in self._prefixes:
            # One conversation is written at a time; what an earlier one with other tools left is not needed.
            self._prefixes = {key: PrefixCache()}
        return render, self._prefixes[key]

    def check(self) -> None:
        """Compile it. Raises: ChatTemplateError."""
        try:
            self._template(has_tools=False)
        except _FAULTS as error:
            raise ChatTemplateError(_reason(error)) from error

    def _template(self, has_tools: bool) -> jinja2.Template:
        source = self.named.get("tool_use", self.source) if has_tools else self.source
        if source not in self._compiled:
            if len(source) > MAX_SOURCE:
                raise TemplateLimitError(f"it is {len(source):,} characters long")
            self._compiled[source] = TemplateEnvironment().from_string(source)
        return self._compiled[source]


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "it calls itself without end"
    if isinstance(error, MemoryError):
        return "it needs too much memory"
    where = f"line {error.lineno}: " if isinstance(error, jinja2.TemplateSyntaxError) else ""
    said = " ".join(str(error).split())[:300]
    return f"{where}{said or type(error).__name__}"
