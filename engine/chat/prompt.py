"""Messages to tokens: the text of a prompt, cut into what each message adds, with control tokens only where the
template wrote them.

Between `template`, which renders, and the session, which builds its turns on what is here.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.chat import marks
from engine.chat.marks import Message
from engine.errors import ChatTemplateError
from engine.tokenizer import Tokenizer

Render = Callable[[Sequence[Message], bool], str]
"""(messages, add_generation_prompt) -> text; raises ChatTemplateError."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt's text.

    Attributes:
        text: what it says.
        is_content: a message's own text; else the template's.
        message_index: the message it belongs to; -1: the prompt for the reply.
    """

    text: str
    is_content: bool
    message_index: int


@dataclass(frozen=True, slots=True)
class Turns:
    """The tokens of a prompt.

    Attributes:
        messages: those that each message adds; of messages that the template does not simply put one behind the other,
            all but the last add none, and the last adds all of theirs.
        generation: those that make the model reply.
        opening: those that the template puts in front by itself: a start token, a system prompt of its own. Where the
            first message is a system prompt they belong to it.
    """

    messages: tuple[tuple[int, ...], ...]
    generation: tuple[int, ...]
    opening: tuple[int, ...] = ()

    def tokens(self) -> list[int]:
        """All of them, in order."""
        return [token for turn in (self.opening, *self.messages, self.generation) for token in turn]


class PrefixCache:
    """Prompts of the beginnings of conversations, so that only new ones are rendered again.

    Attributes:
        max_chars: characters that all of them may hold together.
    """

    def __init__(self, max_chars: int = 4_000_000) -> None:
        self.max_chars = max_chars
        self._texts: OrderedDict[str, str | None] = OrderedDict()
        self._n_chars = 0

    def get(self, key: str, make: Callable[[], str]) -> str | None:
        """The text under that key, made where it is not there; None where the template refuses."""
        if key in self._texts:
            self._texts.move_to_end(key)
            return self._texts[key]
        try:
            text: str | None = make()
        except ChatTemplateError:
            text = None
        self._texts[key] = text
        self._n_chars += len(key) + len(text or "")
        while self._n_chars > self.max_chars and len(self._texts) > 1:
            old_key, old_text = self._texts.popitem(last=False)
            self._n_chars -= len(old_key) + len(old_text or "")
        return text


@dataclass(frozen=True, slots=True)
class _Rendered:
    marked: str  # the whole prompt
    begin: int  # where the first message begins in the prompt without marks
    ends: list[int | None]  # where each message ends there; None: not at one place


def _render(
    render: Render, cache: PrefixCache, messages: Sequence[Message], cut: marks.CutControl, add_generation_prompt: bool
) -> _Rendered:
    clean = marks.cleaned(messages)
    safe = marks.broken(clean, cut)
    marked = render(safe, add_generation_prompt)
    text = marks.without_marks(marked)
    # A template that looks at the ends of a text sees the marks there; then there are none around messages.
    spanned = render(marks.spanned(safe), add_generation_prompt)
    if marks.without_marks(spanned) == text:
        marked = spanned
    spans = marks.find_spans(marked)
    if not safe or [index for _, _, index in spans] != list(range(len(safe))):
        return _Rendered(marked, 0, _ends_by_prefix(render, cache, safe, text, add_generation_prompt))
    heads = _heads(render, cache)
    ends = _ends_by_spans(heads, safe, text, spans)
    if ends is None:
        ends = _ends_by_prefix(render, cache, safe, text, add_generation_prompt)
    elif not add_generation_prompt:
        ends[-1] = len(text)
    else:
        whole = marks.without_marks(render(safe, False))
        ends[-1] = len(whole) if text.startswith(whole) else None
    head = heads.get(str(safe[0].get("role")), "")
    begin = spans[0][0] - len(head) if head and text[: spans[0][0]].endswith(head) else 0
    return _Rendered(marked, begin, ends)


def _ends_by_spans(
    heads: Mapping[str, str], messages: Sequence[Message], text: str, spans: Sequence[tuple[int, int, int]]
) -> list[int | None] | None:
    """Where each message but the last ends: the next one's head begins there. None where a head is not known."""
    ends: list[int | None] = []
    for message, (begin, _, _), (_, end, _) in zip(messages[1:], spans[1:], spans, strict=False):
        head = heads.get(str(message.get("role")), "")
        if not head or not text[end:begin].endswith(head):
            return None
        ends.append(begin - len(head))
    return [*ends, None]


def _ends_by_prefix(
    render: Render, cache: PrefixCache, messages: Sequence[Message], text: str, add_generation_prompt: bool
) -> list[int | None]:
    """Where each message ends: where the prompt of the beginning up to it ends. One rendering for each."""
    ends: list[int | None] = []
    chain = ""
    for n, message in enumerate(messages, 1):
        chain = f"{hash((chain, json.dumps(message, sort_keys=True, default=str))):x}"
        prefix = cache.get(chain, lambda n=n: marks.without_marks(render(messages[:n], False)))  # type: ignore[misc]
        start = next((end for end in reversed(ends) if end is not None), 0)
        is_prefix = prefix is not None and len(prefix) >= start and text.startswith(prefix)
        ends.append(len(prefix) if is_prefix and prefix is not None else None)
    if ends and not add_generation_prompt:
        ends[-1] = len(text)
    return ends


def _heads(render: Render, cache: PrefixCache) -> dict[str, str]:
    """What the template puts in front of a later message's text, by role; roles of which that is not known are absent."""
    probe: list[Message] = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]

    def heads() -> str:
        marked = render(marks.spanned(probe), False)
        spans, text = marks.find_spans(marked), marks.without_marks(marked)
        ends = _ends_by_prefix(render, cache, probe, text, False)
        found = {}
        for message, end, (begin, _, _) in zip(probe[1:], ends, spans[1:], strict=False):
            if end is not None:
                found[str(message["role"])] = text[end:begin]
        return json.dumps(found)

    known = cache.get("heads", heads)
    found: dict[str, str] = json.loads(known) if known else {}
    return found


def make_turns(
    render: Render,
    cache: PrefixCache,
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    add_generation_prompt: bool,
    known: Mapping[int, Sequence[int]],
) -> Turns:
    """Encode a conversation, message by message.

    Args:
        render: the template.
        cache: of this template, these tools and variables.
        tokenizer: of the model.
        messages: the conversation.
        add_generation_prompt: end with what makes the model reply.
        known: the tokens of messages whose text came from the model, by index; used where they say the same text.
    Raises: ChatTemplateError.
    """
    rendered = _render(render, cache, messages, tokenizer.cut_control, add_generation_prompt)
    places = [end for end in rendered.ends if end is not None]
    has_opening = rendered.begin > 0 and messages[0].get("role") != "system"
    pieces = marks.cut_marked(rendered.marked, [rendered.begin, *places] if has_opening else places)
    is_first = True
    opening: list[int] = []
    if has_opening:
        opening, is_first = _encode(tokenizer, pieces.pop(0), is_first, messages, known)
    turns: list[tuple[int, ...]] = []
    for end in rendered.ends:
        ids: list[int] = []
        if end is not None:
            ids, is_first = _encode(tokenizer, pieces.pop(0), is_first, messages, known)
        turns.append(tuple(ids))
    generation, _ = _encode(tokenizer, pieces.pop(0), is_first, messages, known)
    bos = tokenizer.bos_token_id
    whole = Turns(tuple(turns), tuple(generation), tuple(opening))
    if tokenizer.add_bos and bos is not None and whole.tokens()[:1] != [bos]:
        return replace(whole, opening=(bos, *opening))
    return whole


def make_segments(
    render: Render, cache: PrefixCache, messages: Sequence[Message], cut: marks.CutControl, add_generation_prompt: bool
) -> list[Segment]:
    """The text of a prompt in parts: the template's and the messages' own. Raises: ChatTemplateError."""
    rendered = _render(render, cache, messages, cut, add_generation_prompt)
    text = marks.without_marks(rendered.marked)
    spans = marks.find_spans(rendered.marked)
    segments: list[Segment] = []

    def add(begin: int, end: int, is_content: bool) -> None:
        owner = next((i for i, e in enumerate(rendered.ends) if e is not None and end <= e), -1)
        if end > begin:
            segments.append(Segment(text[begin:end], is_content, owner))

    places = [end for end in rendered.ends if end is not None]
    at = 0
    for begin, end, index in spans:
        _add_template_text(add, places, at, begin)
        segments.append(Segment(text[begin:end], True, index))
        at = end
    _add_template_text(add, places, at, len(text))
    return segments


def _add_template_text(add: Callable[[int, int, bool], None], places: Sequence[int], begin: int, end: int) -> None:
    for place in [place for place in places if begin < place < end]:
        add(begin, place, False)
        begin = place
    add(begin, end, False)


def _encode(
    tokenizer: Tokenizer, marked: str, is_first: bool, messages: Sequence[Message], known: Mapping[int, Sequence[int]]
) -> tuple[list[int], bool]:
    """Encode a piece of a marked prompt; also whether what follows stands behind a special token."""
    ids: list[int] = []
    for text, token in tokenizer.cut_control(marked):
        if token is not None:
            ids.append(token)
            is_first = True
            continue
        plain = marks.without_marks(text)
        at = 0
        for begin, end, index in marks.find_spans(text):
            tokens = known.get(index)
            if tokens is None or not _says(tokenizer, tokens, plain[begin:end], messages[index]):
                continue
            if begin > at:
                ids += tokenizer.encode_part(plain[at:begin], is_first=is_first)
            ids += tokens
            at, is_first = end, False
        if len(plain) > at:
            ids += tokenizer.encode_part(plain[at:], is_first=is_first)
            is_first = False
    return ids, is_first


def _says(tokenizer: Tokenizer, tokens: Sequence[int], text: str, message: Message) -> bool:
    if message.get("content") != text:
        return False
    decoder = tokenizer.detokenizer()
    return "".join(decoder.push(token) for token in tokens) + decoder.flush() == text
