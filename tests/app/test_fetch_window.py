"""Getting a model in the window: found, chosen, fetched, paused and gone on with."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.bridge.fetch_client import FetchClient
from app.models import ModelCatalogue
from app.windows.fetch_window import FetchWindow
from tests.app.hub_server import Hub, hub_running

DATA = random.Random(0).randbytes(9_000_000)
COMMIT = "c" * 40


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_running() as running:
        lfs = {"sha256": hashlib.sha256(DATA).hexdigest(), "size": len(DATA), "pointerSize": 1}
        siblings = [
            {"rfilename": "tiny-Q8_0.gguf", "size": len(DATA), "lfs": lfs},
            {"rfilename": "README.md", "size": 3},
        ]
        running.api["/api/models"] = [{"id": "org/tiny", "downloads": 7}]
        running.api["/api/models/org/tiny"] = {"id": "org/tiny", "sha": COMMIT, "siblings": siblings}
        running.files[f"/org/tiny/resolve/{COMMIT}/tiny-Q8_0.gguf"] = DATA
        yield running


@pytest.fixture
def window(hub: Hub, qtbot: QtBot, tmp_path: Path) -> Iterator[FetchWindow]:
    client, catalogue = FetchClient(hub.url("")), ModelCatalogue()
    catalogue.set_entries((), 5_000_000)
    window = FetchWindow(client, catalogue, tmp_path / "models", None)
    qtbot.addWidget(window)
    window.show()
    yield window
    assert client.shutdown(10_000)


def choose(window: FetchWindow, qtbot: QtBot) -> None:
    window._search_edit.setText("tiny")
    window._search_button.click()
    qtbot.waitUntil(lambda: window._models_list.count() == 1, timeout=15_000)
    window._models_list.setCurrentRow(0)
    qtbot.waitUntil(lambda: window._files_tree.topLevelItemCount() == 1, timeout=15_000)
    item = window._files_tree.topLevelItem(0)
    assert item is not None
    item.setSelected(True)


def test_nothing_is_asked_before_a_person_asks(window: FetchWindow, hub: Hub, qtbot: QtBot) -> None:
    assert hub.url("") in window._status_label.text()
    qtbot.wait(100)
    assert hub.requests == []
    assert not window._fetch_button.isEnabled()


def test_found_chosen_paused_and_fetched(window: FetchWindow, hub: Hub, qtbot: QtBot, tmp_path: Path) -> None:
    choose(window, qtbot)
    item = window._files_tree.topLevelItem(0)
    assert item is not None
    assert [item.text(i) for i in (0, 1, 3)] == ["tiny-Q8_0.gguf", "Q8_0", "too large"]
    hub.behaviour.wait_s = 0.02
    window._fetch_button.click()
    assert window._fetch_button.text() == "Pause"
    qtbot.waitUntil(lambda: hub.n_sent > 500_000, timeout=15_000)
    window._fetch_button.click()
    qtbot.waitUntil(lambda: "paused" in window._status_label.text(), timeout=15_000)
    target = tmp_path / "models" / "tiny-Q8_0.gguf"
    assert not target.exists()
    hub.behaviour.wait_s = 0.0
    window._fetch_button.click()
    qtbot.waitUntil(lambda: "is here" in window._status_label.text(), timeout=15_000)
    assert target.read_bytes() == DATA


def test_what_goes_wrong_is_said(window: FetchWindow, hub: Hub, qtbot: QtBot) -> None:
    choose(window, qtbot)
    hub.files.clear()
    window._fetch_button.click()
    qtbot.waitUntil(lambda: "not fetched" in window._status_label.text(), timeout=15_000)
    assert "any more" in window._status_label.text()
    hub.behaviour.statuses = [404]
    window._models_list.setCurrentRow(-1)
    window._models_list.setCurrentRow(0)
    qtbot.waitUntil(lambda: "does not have" in window._status_label.text(), timeout=15_000)
