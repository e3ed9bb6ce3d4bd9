"""The shown branch of a chat as a page to read: Markdown, or HTML that asks for nothing and runs nothing."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from app.storage.records import ChatTree, MessageRecord

NAMES = {"user": "You", "assistant": "Reply", "system": "System prompt"}
MAX_NESTING = 20
MAX_MARKDOWN_CHARS = 200_000
"""A longer message stands in the page as it was written."""

_STYLE = """
body { font-family: sans-serif; line-height: 1.5; max-width: 760px; margin: 2em auto; padding: 0 1em; }
h2 { font-size: 0.9em; color: #5c6370; margin: 2em 0 0.3em; }
pre { background: #f3f4f6; padding: 0.8em; overflow-x: auto; white-space: pre-wrap; }
table { border-collapse: collapse; } td, th { border: 1px solid #c8ccd2; padding: 0.2em 0.6em; }
blockquote { border-left: 3px solid #c8ccd2; margin-left: 0; padding-left: 1em; }
"""


def branch(tree: ChatTree) -> list[MessageRecord]:
    """Return the messages of the branch that is shown, from the root on."""
    by_id = {message.record.id: message.record for message in tree.messages}
    found: list[MessageRecord] = []
    record = by_id.get(tree.chat.leaf_id or 0)
    while record is not None:
        found.append(record)
        record = by_id.get(record.parent_id or 0)
    return found[::-1]


def markdown_page(trees: tuple[ChatTree, ...]) -> str:
    """Return chats as one Markdown text."""
    parts = []
    for tree in trees:
        parts.append(f"# {tree.chat.title}\n\n*{_date(tree)}*")
        parts += [f"## {NAMES[message.role]}\n\n{message.text.strip()}" for message in branch(tree)]
    return "\n\n".join(parts) + "\n"


def html_page(trees: tuple[ChatTree, ...]) -> str:
    """Return chats as one HTML page."""
    parts = []
    for tree in trees:
        parts.append(f"<h1>{html.escape(tree.chat.title)}</h1>\n<p><em>{_date(tree)}</em></p>")
        parts += [f"<h2>{NAMES[message.role]}</h2>\n{_body(message.text)}" for message in branch(tree)]
    title = html.escape(trees[0].chat.title) if len(trees) == 1 else "Causerie"
    return (
        '<!DOCTYPE html>\n<html><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _date(tree: ChatTree) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(tree.chat.used_at))
    except (ValueError, OverflowError, OSError):  # a year that no calendar of the system has
        return ""


def _body(text: str) -> str:
    if len(text) > MAX_MARKDOWN_CHARS:
        return f"<pre>{html.escape(text)}</pre>"
    return str(_reader().render(text))


class _Renderer(RendererHTML):
    """Makes links of images, so that nothing is fetched when the page is opened."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        source = html.escape(str(tokens[idx].attrs.get("src", "")))
        return f'<a href="{source}">{html.escape(tokens[idx].content) or source}</a>'


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": MAX_NESTING}
    reader = MarkdownIt("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])
    return reader.disable(["html_block", "html_inline"])
