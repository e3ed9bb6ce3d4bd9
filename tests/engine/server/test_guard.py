"""Who may use the server, and what comes of requests with something wrong in them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from engine.errors import ParamError
from engine.server.config import ServerConfig
from tests.engine.server.serving import Local, serving, wait_until
from tests.fuzz import mutated

CHAT: Any = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
PAGE = "https://page.example"


def status(local: Local, **headers: str) -> int:
    return local.ask("GET", "/v1/models", headers={k.replace("_", "-"): v for k, v in headers.items()}).status


def test_only_our_names_are_answered() -> None:
    with serving(ServerConfig(port=0, allowed_hosts=("box.lan",))) as local:
        for host in ("localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "10.1.2.3", "box.lan:80", "BOX.lan"):
            assert status(local, Host=host) == 200, host
        for host in (
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "",
            "[evil]",
            "box.lan.evil",
        ):
            assert status(local, Host=host) == 403, host


def test_web_pages_are_refused_unless_allowed() -> None:
    with serving() as local:
        assert status(local, Origin=PAGE) == 403
        assert status(local, Origin="null") == 403
        assert status(local, Origin="http://127.0.0.1:9999") == 403
        assert status(local, Sec_Fetch_Site="cross-site") == 403
        assert status(local, Sec_Fetch_Site="none") == 200
        assert local.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": PAGE}).status == 403
        plain = local.ask("POST", "/v1/chat/completions", raw=b"{}", headers={"content-type": "text/plain"})
        assert plain.status == 415
        assert "access-control-allow-origin" not in plain.headers
    with serving(ServerConfig(port=0, allowed_origins=(PAGE,))) as local:
        allowed = local.ask("GET", "/v1/models", headers={"Origin": PAGE})
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
        preflight = local.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": PAGE})
        assert preflight.status == 200
        assert "content-type" in preflight.headers["access-control-allow-headers"]
        assert status(local, Origin="https://other.example") == 403


def test_the_key_is_needed_where_there_is_one() -> None:
    with serving(ServerConfig(port=0, api_key="a secret")) as local:
        assert local.ask("GET", "/health").status == 200
        refused = [local.ask("GET", path) for path in ("/v1/models", "/metrics", "/props", "/slots")]
        assert {answer.status for answer in refused} == {401}
        assert refused[0].error["code"] == "invalid_api_key"
        assert status(local, Authorization="Bearer a secre") == 401
        assert status(local, Authorization="Basic a secret") == 401
        assert status(local, Authorization="Bearer a secret") == 200
        with local.client(key="a secret") as client:
            assert client.models.list().data[0].id == "model"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "box.lan"])
def test_other_interfaces_need_a_key(host: str) -> None:
    with pytest.raises(ParamError, match="needs a key"):
        ServerConfig(host=host)
    assert ServerConfig(host=host, api_key="k").host == host


WRONG: list[tuple[str, Any, str]] = [
    ("/v1/chat/completions", {}, "messages"),
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": ["x"]}, "messages[0]"),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("/v1/chat/completions", {"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ("/v1/chat/completions", CHAT | {"temperature": "hot"}, "temperature"),
    ("/v1/chat/completions", CHAT | {"temperature": -1}, "temperature"),
    ("/v1/chat/completions", CHAT | {"temperature": 10**400}, "temperature"),
    ("/v1/chat/completions", CHAT | {"max_tokens": 1.5}, "max_tokens"),
    ("/v1/chat/completions", CHAT | {"n": 99}, "n"),
    ("/v1/chat/completions", CHAT | {"stop": [1]}, "stop"),
    ("/v1/chat/completions", CHAT | {"stream": "yes"}, "stream"),
    ("/v1/chat/completions", CHAT | {"tools": [{}]}, "tools"),
    ("/v1/chat/completions", CHAT | {"response_format": {"type": "json_object"}}, "response_format"),
    ("/v1/chat/completions", CHAT | {"logit_bias": {"x": 1}}, "logit_bias"),
    ("/v1/chat/completions", CHAT | {"logit_bias": {"99999": 1}}, "logit_bias"),
    ("/v1/chat/completions", CHAT | {"top_logprobs": 21}, "top_logprobs"),
    ("/v1/completions", {}, "prompt"),
    ("/v1/completions", {"prompt": []}, "prompt"),
    ("/v1/completions", {"prompt": [-1]}, "prompt"),
    ("/v1/completions", {"prompt": [1, "x"]}, "prompt"),
    ("/v1/completions", {"prompt": ["x"] * 17}, "prompt"),
    ("/v1/embeddings", {"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ("/v1/embeddings", {"input": "x", "dimensions": 3}, "dimensions"),
    ("/tokenize", {}, "content"),
    ("/detokenize", {"tokens": [10**9]}, "tokens"),
]  # fmt: skip


def test_wrong_requests_get_a_sentence_that_names_the_field() -> None:
    with serving() as local:
        for path, body, param in WRONG:
            answer = local.ask("POST", path, body)
            assert (answer.status, answer.error["param"]) == (400, param), (path, body, answer.body)
            assert "\n" not in answer.error["message"]
        for raw in (b"", b"{", b"[]", b"null", b'{"a": NaN}', b"[" * 100_000, b"\xff", b'{"a": ' + b"9" * 5000 + b"}"):
            answer = local.ask("POST", "/v1/completions", raw=raw)
            assert answer.status == 400, raw[:20]
        assert local.ask("POST", "/v1/chat/completions", CHAT | {"id_slot": 9}).status == 400
        assert local.ask("GET", "/v1/chat/completions").status == 405
        assert local.ask("GET", "/nothing").error["message"] == "Not Found"
        assert local.n_busy() == 0
        assert local.ask("POST", "/v1/chat/completions", CHAT).status == 200


def test_large_bodies_are_refused() -> None:
    with serving(ServerConfig(port=0, max_body_bytes=1000)) as local:
        assert local.post("/tokenize", content="x" * 2000).status == 413
        assert local.post("/tokenize", content="x" * 200).status == 200


def test_five_hundred_mutated_requests_get_a_sentence() -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", CHAT | {"temperature": 0.5, "logit_bias": {"5": 1}, "stop": ["a"], "seed": 1, "n": 2}),
        ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 2, "logprobs": 2, "top_k": 5}),
        ("/v1/embeddings", {"input": ["one", "two"], "encoding_format": "base64"}),
        ("/apply-template", {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}),
    ]
    rng = random.Random(5)
    with serving(n_ctx=64) as local:
        for i in range(500):
            path, body = bodies[i % len(bodies)]
            answer = local.ask("POST", path, raw=mutated(json.dumps(body).encode(), rng))
            assert answer.status in (200, 400), (i, answer.body)
            assert answer.status == 200 or answer.error["message"]
        wait_until(lambda: local.n_busy() == 0)
        assert local.ask("POST", "/v1/chat/completions", CHAT).status == 200
