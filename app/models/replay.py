"""Making a reply again as it was made, and saying whether it came out the same."""

from __future__ import annotations

import json

from PySide6.QtCore import QCoreApplication

from app.bridge.messages import ReplyRecord, Sampling
from app.storage.records import MessageRecord


def asked_for(record: ReplyRecord) -> tuple[Sampling, int] | None:
    """Return the sampling, seed included, and the length that a reply was made with; None where that is not known."""
    try:
        values = json.loads(record.params)
        n_predict = int(values.pop("n_predict"))
        return Sampling(**values), n_predict
    except (ValueError, KeyError, TypeError):
        return None


class Replays:
    """The replies that are being made again.

    Thread: GUI thread.
    """

    def __init__(self) -> None:
        self._old: dict[int, MessageRecord] = {}

    def add(self, reply_id: int, old: MessageRecord) -> None:
        """Note that a reply is to be what an old one is."""
        self._old[reply_id] = old

    def verdict(self, new: MessageRecord) -> str:
        """Return a sentence about a reply that is over, "" for one that is no replay."""
        old = self._old.pop(new.id, None)
        if old is None or new.state == "failed":
            return ""
        if (old.text, old.token_ids) == (new.text, new.token_ids):
            return _tr("The same text came out again.")
        differing = [name for name, a, b in _compared(old, new) if a != b]
        if differing:
            return _tr("Another text came out, for these are not what they were: {0}.").format(", ".join(differing))
        if new.state != old.state:
            return _tr("The reply was stopped at another place.")
        return _tr("Another text came out: parts of the context were computed in other company, and a near tie fell.")


def _compared(old: MessageRecord, new: MessageRecord) -> list[tuple[str, str, str]]:
    a, b = old.record, new.record
    return [
        (_tr("the model"), old.model_fp, new.model_fp),
        (_tr("the chat template"), a.template_hash, b.template_hash),
        (_tr("the settings"), a.params, b.params),
        (_tr("the version of the engine"), a.engine, b.engine),
        (_tr("the processor's instructions"), a.isa, b.isa),
        (_tr("what is in the context"), a.context_hash, b.context_hash),
    ]


def as_asked(sampling: Sampling, n_predict: int, like: MessageRecord | None) -> tuple[Sampling, int]:
    """Return how a reply shall be made: like an old one where that is known, else as given."""
    return (asked_for(like.record) if like is not None else None) or (sampling, n_predict)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Replays", text)
