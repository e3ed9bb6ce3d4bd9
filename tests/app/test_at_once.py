"""Two chats answered at once by the real default model: each gets its share, and no chat waits for the other."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from app.bridge.cancel import JobCancel
from app.bridge.local_engine import LocalEngine
from app.bridge.messages import EngineOptions, Generate, PromptMessage, Sampling
from app.bridge.pool import SessionPool
from app.bridge.port import Broken, Ended, Generated, PortEvent
from tests.models import SMOLLM2, real_model

pytestmark = pytest.mark.real

N_PREDICT = 40


def test_two_chats_get_about_half_each(tmp_path: Path) -> None:
    model = LocalEngine().load_model(real_model(SMOLLM2), None, EngineOptions(), lambda fraction: None)
    pool = SessionPool(model, tmp_path, lambda event: None)
    made: list[int] = []
    over = {chat_id: threading.Event() for chat_id in (1, 2)}
    ends: dict[int, PortEvent] = {}

    def listener(chat_id: int) -> None:
        def on_event(event: PortEvent) -> None:
            if isinstance(event, Generated):
                made.append(chat_id)
            elif isinstance(event, (Ended, Broken)):
                ends[chat_id] = event
                over[chat_id].set()

        session = pool.take(chat_id, 0, ())[0]
        messages = (PromptMessage(1, "user", f"Write a long story about the number {chat_id}."),)
        request = Generate(chat_id, chat_id, 2, messages, Sampling(temperature=0.0), N_PREDICT, 0)
        session.start(request, JobCancel(), on_event)

    for chat_id in over:
        listener(chat_id)
    assert all(event.wait(60) for event in over.values())
    pool.close()
    model.close()
    assert all(isinstance(end, Ended) and end.finish == "length" for end in ends.values()), ends
    both = made[made.index(2) : len(made) - made[::-1].index(1)]
    share = Counter(both)[2] / len(both)
    assert len(both) > N_PREDICT and 0.4 <= share <= 0.6
