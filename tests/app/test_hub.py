"""The hub's answers: what there is, and nothing that would go elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.fetch.errors import FetchError, LostError, LyingServerError, RefusedError
from app.fetch.hub import Hub, quant_of, safe_name
from app.fetch.transfer import Transfer
from tests.app.hub_server import Hub as HubServer
from tests.app.hub_server import hub_running
from tests.fuzz import mutated

SHA256 = "a" * 64
COMMIT = "c" * 40
FILES: list[dict[str, Any]] = [
    {"rfilename": "README.md", "size": 10},
    {"rfilename": "model-Q4_K_M.gguf", "size": 400, "lfs": {"sha256": SHA256, "size": 400, "pointerSize": 1}},
    {"rfilename": "model-Q8_0.gguf", "size": 800, "lfs": {"sha256": "nonsense", "size": 800, "pointerSize": 1}},
    {"rfilename": "big/model-BF16-00002-of-00002.gguf", "size": 900},
    {"rfilename": "big/model-BF16-00001-of-00002.gguf", "size": 1000},
    {"rfilename": "mmproj-model-f16.gguf", "size": 50},
    {"rfilename": "../../etc/evil.gguf", "size": 5},
    {"rfilename": "strange.gguf", "size": -5},
]
INFO = {"id": "org/model", "sha": COMMIT, "siblings": FILES, "tags": ["gguf"]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    with hub_running() as running:
        running.api["/api/models"] = [
            {"id": "org/model", "downloads": 7, "gated": "manual"},
            {"id": "../x", "downloads": 1},
        ]
        running.api["/api/models/org/model"] = INFO
        yield running


def hub(server: HubServer, token: str = "") -> Hub:
    return Hub(server.url(""), token)


def test_search_and_files(server: HubServer) -> None:
    (model,) = hub(server).search("model")
    assert (model.repo, model.n_downloads, model.is_gated) == ("org/model", 7, True)
    choices = hub(server).choices("org/model")
    assert [(c.name, c.quant, c.size_bytes) for c in choices] == [
        ("strange.gguf", "", 0),
        ("model-Q4_K_M.gguf", "Q4_K_M", 400),
        ("model-Q8_0.gguf", "Q8_0", 800),
        ("model-BF16-00001-of-00002.gguf", "BF16", 1900),
    ]
    assert [name for name, _ in choices[3].parts] == [f"model-BF16-0000{i}-of-00002.gguf" for i in (1, 2)]
    ((_, remote),) = choices[1].parts
    assert (remote.size_bytes, remote.sha256) == (400, SHA256)
    assert remote.url == server.url(f"/org/model/resolve/{COMMIT}/model-Q4_K_M.gguf")
    assert choices[2].parts[0][1].sha256 == ""


def test_a_choice_can_be_fetched(server: HubServer, tmp_path: Path) -> None:
    server.files[f"/org/model/resolve/{COMMIT}/strange.gguf"] = b"some bytes"
    name, remote = hub(server).choices("org/model")[0].parts[0]
    assert Transfer(remote, tmp_path / name).run()
    assert (tmp_path / "strange.gguf").read_bytes() == b"some bytes"


def test_the_token_is_shown_only_where_there_is_one(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "of somebody else")
    hub(server).search("x")
    hub(server, "mine").search("x")
    assert [token for _, _, token in server.requests] == ["", "Bearer mine"]


def test_hubs_that_refuse_or_are_not_there(server: HubServer) -> None:
    for status in (401, 403, 404):
        server.behaviour.statuses = [status]
        with pytest.raises(RefusedError):
            hub(server).choices("org/model")
    with pytest.raises(LostError):
        Hub("http://127.0.0.1:1").choices("org/model")
    for repo in ("../x", "a/b/c", "a b", "", "a" * 200):
        with pytest.raises(LyingServerError):
            hub(server).choices(repo)


@pytest.mark.parametrize(
    "path", ["a/../b.gguf", "..", ".hidden.gguf", "a\0.gguf", "x" * 300 + ".gguf", "c:x.gguf", "a.bin", "b\n.gguf"]
)
def test_names_that_would_go_elsewhere(path: str) -> None:
    assert safe_name(path) is None


def test_quantisations_of_names() -> None:
    names = {
        "a-Q4_K_M.gguf": "Q4_K_M",
        "a.IQ2_XXS.gguf": "IQ2_XXS",
        "a-f16-00001-of-00003.gguf": "F16",
        "q4.gguf": "Q4",
        "a.gguf": "",
    }
    assert {name: quant_of(name) for name in names} == names


def test_five_hundred_mutated_answers_end_in_a_sentence(server: HubServer) -> None:
    import json

    answers = {path: json.dumps(value).encode() for path, value in server.api.items()}
    rng = random.Random(3)
    asker = hub(server)
    for i in range(500):
        path = ("/api/models", "/api/models/org/model")[i % 2]
        server.api = {path: mutated(answers[path], rng)}
        try:
            if i % 2:
                for choice in asker.choices("org/model"):
                    assert all(safe_name(name) == name for name, _ in choice.parts)
            else:
                asker.search("x")
        except FetchError as error:
            assert str(error)
            assert "\n" not in str(error)
