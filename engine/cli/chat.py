"""`chat MODEL`: a conversation in the terminal; from a pipe, every line is a message."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from engine.cancel import CancelFlag
from engine.cli.options import (
    Subparsers,
    add_context,
    add_model,
    add_sampling,
    at_least,
    generate_params,
    open_context,
)  # fmt: skip
from engine.context.core import Context
from engine.errors import ContextFullError, UnsupportedCallError
from engine.generate import Finished, GenerateParams, TextDelta, generate
from engine.prompt import Message, PromptBuilder
from engine.session import PrefillProgress, Session, TurnsLeft

PROGRESS_FROM = 256
"""Tokens to compute from which on the progress is worth showing."""


def add_parser(commands: Subparsers) -> argparse.ArgumentParser:
    """What it takes."""
    parser = commands.add_parser(
        "chat", help="talk to a model", description="/quit ends it. Ctrl+C stops a reply; where none is made, it quits."
    )
    add_model(parser)
    parser.add_argument("--system", metavar="TEXT", default="", help="system prompt; it never leaves the context")
    parser.add_argument("-n", "--n-predict", type=at_least(int, -1), default=-1, help="most tokens of a reply")
    add_context(parser)
    add_sampling(parser)
    return parser


@contextmanager
def stopped_by_interrupt(ctx: Context, cancel: CancelFlag) -> Iterator[None]:
    """Let Ctrl+C stop the reply, and a second one the program."""

    def stop(number: int, frame: FrameType | None) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    before = signal.signal(signal.SIGINT, stop)
    # Python looks for signals only where it runs: this makes it run every millisecond of a decode.
    ctx.set_abort_callback(cancel.is_set)
    try:
        yield
    finally:
        ctx.set_abort_callback(None)
        signal.signal(signal.SIGINT, before)


class TerminalChat:
    """The conversation: messages so far, and the session that remembers them."""

    def __init__(self, session: Session, params: GenerateParams, system: str) -> None:
        model = session.ctx.get_model()
        self._session, self._params = session, params
        self._prompts = PromptBuilder(model.chat_template, model.tokenizer)
        self._messages = [Message("system", "system", system, pinned=True)] if system else []
        self._is_tty = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Print the reply to a message."""
        n = len(self._messages)
        question = Message(f"{n}", "user", text)
        turns = self._prompts.turns([*self._messages, question], f"{n + 1}")
        cancel, reply = CancelFlag(), ""
        with stopped_by_interrupt(self._session.ctx, cancel):
            for event in generate(self._session, turns, self._params, cancel):
                match event:
                    case TextDelta():
                        reply += event.text
                        print(event.text, end="", flush=True)
                    case PrefillProgress() if self._is_tty and event.n_total >= PROGRESS_FROM:
                        end = "\r" if event.n_done < event.n_total else "\r\033[K"
                        print(f"{event.n_done:,} of {event.n_total:,} tokens", end=end, file=sys.stderr, flush=True)
                    case TurnsLeft():
                        self._note(f"[{len(event.keys)} messages left the context]")
                    case Finished():
                        print()
                        self._messages += [question, Message(f"{n + 1}", "assistant", reply, event.tokens)]
                        self._tell(event)

    def _tell(self, finished: Finished) -> None:
        stats = finished.stats
        if finished.reason == "context":
            self._note("[the context is full]")
        self._note(
            f"[{stats.n_reused:,} tokens ready, {stats.n_computed:,} computed, {stats.n_generated:,} generated"
            f" at {stats.tok_s:.1f} a second]"
        )

    def _note(self, text: str) -> None:
        if self._is_tty:
            print(f"\033[2m{text}\033[0m", file=sys.stderr)


def read_lines(is_tty: bool) -> Iterator[str]:
    """Messages until the end of the input or /quit; empty lines are none."""
    while True:
        if is_tty:
            print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line or line.strip() == "/quit":
            return
        if line.strip():
            yield line.rstrip("\r\n")


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends."""
    params = generate_params(args)
    with open_context(args) as opened:
        if opened.model.arch.has_encoder:
            raise UnsupportedCallError("chat", "an encoder-decoder, which takes one text at a time: use generate")
        opened.model.chat_template.check()
        is_tty = sys.stdin.isatty()
        if is_tty:
            print(f"{opened.model.name}, {opened.ctx.n_ctx():,} tokens of context. /quit ends the chat.")
        chat = TerminalChat(Session(opened.ctx), params, args.system)
        for line in read_lines(is_tty):
            try:
                chat.say(line)
            except ContextFullError as error:
                print(error, file=sys.stderr)
        if is_tty:
            print()
    return 0
