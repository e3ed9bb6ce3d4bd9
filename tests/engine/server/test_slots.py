"""Slots, the queue, clients that go, and what is reused of a cache."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import RateLimitError

from engine import load_model
from engine.embedding import Embedder
from engine.server.config import ServerConfig
from tests.engine.server.serving import TINY, Local, serving, wait_until

LONG: Any = {"prompt": "once", "ignore_eos": True, "max_tokens": 10**6, "stream": True}


def begin(local: Local, **fields: object) -> socket.socket:
    """Send a completion request and leave the answer unread."""
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(local.address)
    connection.sendall(head.encode() + body)
    return connection


def cached(answer: Any) -> int:
    n: int = answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    return n


def test_a_client_that_goes_frees_its_slot() -> None:
    with serving(n_slots=2, n_ctx=100_000) as local:
        for is_stream in (True, False):
            connections = [begin(local, **LONG | {"stream": is_stream}) for _ in range(2)]
            wait_until(lambda: local.n_busy() == 2)
            for connection in connections:
                connection.close()
            wait_until(lambda: local.n_busy() == 0)
        assert local.metric("jobs_cancelled_total") == 4
        assert local.post("/v1/completions", prompt="x", max_tokens=1).status == 200


def test_a_client_that_goes_while_it_waits_leaves_the_queue() -> None:
    with serving(n_slots=1, n_ctx=100_000) as local:
        first = begin(local, **LONG)
        wait_until(lambda: local.n_busy() == 1)
        second = begin(local, **LONG)
        wait_until(lambda: local.metric("requests_deferred") == 1)
        second.close()
        wait_until(lambda: local.metric("requests_deferred") == 0)
        assert local.n_busy() == 1
        first.close()
        wait_until(lambda: local.n_busy() == 0)


def test_the_queue_is_bounded() -> None:
    with serving(ServerConfig(port=0, n_queue_max=1), n_slots=1, n_ctx=100_000) as local, local.client() as client:
        first = begin(local, **LONG)
        wait_until(lambda: local.n_busy() == 1)
        second = begin(local, **LONG)
        wait_until(lambda: local.metric("requests_deferred") == 1)
        with pytest.raises(RateLimitError) as caught:
            client.completions.create(model="x", prompt="x")
        assert caught.value.response.headers["retry-after"] == "1"
        assert local.metric("requests_refused_total") == 1
        for connection in (first, second):
            connection.close()
        wait_until(lambda: local.n_busy() == 0)


def test_ending_the_server_ends_streams_with_a_sentence() -> None:
    with serving(n_slots=1, n_ctx=100_000) as local:
        connection = http.client.HTTPConnection(*local.address, timeout=20)
        connection.request("POST", "/v1/completions", json.dumps(LONG), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.readline().startswith(b"data: ")
    response.close()
    connection.close()


def test_prompts_are_shared_between_slots() -> None:
    with serving(n_slots=2) as local:
        start = "a long beginning that many prompts have in common, " * 2
        first = local.post(
            "/v1/completions", prompt=start + "first" * 12, max_tokens=40, ignore_eos=True, temperature=0
        )
        n_start = len(local.post("/tokenize", content=start, add_special=True).json["tokens"]) - 1
        second = local.post("/v1/completions", prompt=start + "x" * 30, max_tokens=1, temperature=0)
        assert n_start - 2 <= cached(second) <= n_start + 1
        # The first one's cache is still there: the second went to the other slot, with the beginning copied.
        again = local.post(
            "/v1/completions", prompt=start + "first" * 12, max_tokens=40, ignore_eos=True, temperature=0
        )
        assert cached(again) == again.json["usage"]["prompt_tokens"] - 1
        assert again.json["choices"] == first.json["choices"]
        alone = local.post("/v1/completions", prompt=start + "x" * 30, max_tokens=1, temperature=0, cache_prompt=False)
        assert cached(alone) == 0
        assert alone.json["choices"] == second.json["choices"]


def test_chunks_behind_an_edit_are_moved() -> None:
    with serving(n_slots=1) as local:
        old = [5 + i % 300 for i in range(120)]
        edited = old[:20] + old[33:]
        assert local.post("/v1/completions", prompt=old, max_tokens=1).status == 200
        answer = local.post("/v1/completions", prompt=edited, max_tokens=1, n_cache_reuse=16)
        assert cached(answer) == len(edited) - 1
        assert local.post("/v1/completions", prompt=old, max_tokens=1).status == 200
        answer = local.post("/v1/completions", prompt=edited, max_tokens=1)
        assert cached(answer) == 20


def test_save_restore_and_erase(tmp_path: Path) -> None:
    with serving(ServerConfig(port=0, slot_save_path=tmp_path), n_slots=2) as local:
        ask: Any = {"prompt": "once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        first = local.post("/v1/completions", id_slot=0, **ask)
        saved = local.post("/slots/0?action=save", filename="a.slot")
        assert (saved.status, saved.json["filename"]) == (200, "a.slot")
        assert saved.json["n_written"] == (tmp_path / "a.slot").stat().st_size
        n_tokens = saved.json["n_saved"]
        assert n_tokens == first.json["usage"]["total_tokens"] - 1
        assert local.ask("POST", "/slots/0?action=erase").json["n_erased"] == n_tokens
        restored = local.post("/slots/1?action=restore", filename="a.slot")
        assert restored.json["n_restored"] == n_tokens
        again = local.post("/v1/completions", id_slot=1, **ask)
        assert again.json["choices"] == first.json["choices"]
        assert cached(again) == again.json["usage"]["prompt_tokens"] - 1

        for name in ("../a", "/etc/passwd", "a/b", "", ".hidden", "x" * 101, "a\0b", "..", "é"):
            assert local.post("/slots/0?action=save", filename=name).error["param"] == "filename", name
        assert local.post("/slots/0?action=save", filename="b.slot").status == 400  # it is empty
        assert local.post("/slots/0?action=restore", filename="none").status == 404
        assert local.post("/slots/0?action=eat", filename="a").error["param"] == "action"
        assert local.ask("POST", "/slots/7?action=erase").status == 400
        (tmp_path / "bad").write_bytes((tmp_path / "a.slot").read_bytes()[:-9])
        assert local.post("/slots/1?action=restore", filename="bad").status == 400
        assert local.post("/v1/completions", id_slot=1, **ask).json["choices"] == first.json["choices"]
    with serving() as local:
        assert local.post("/slots/0?action=save", filename="a").status == 501


def test_slots_in_use_are_left_alone(tmp_path: Path) -> None:
    with serving(ServerConfig(port=0, slot_save_path=tmp_path), n_slots=1, n_ctx=100_000) as local:
        connection = begin(local, **LONG)
        wait_until(lambda: local.n_busy() == 1)
        for action in ("save", "erase"):
            assert local.post(f"/slots/0?action={action}", filename="a").status == 409
        connection.close()
        wait_until(lambda: local.n_busy() == 0)


def test_embeddings() -> None:
    with load_model(TINY, n_threads=1) as model:
        embedder = Embedder(model)
        texts = ["one text", "another one"]
        expected = [embedder.embed(model.tokenizer.encode(text)) for text in texts]
        embedder.close()
    with serving() as local, local.client() as client:
        of_base64 = client.embeddings.create(model="x", input=texts)
        of_floats = client.embeddings.create(model="x", input=texts, encoding_format="float")
        for got in (of_base64, of_floats):
            assert [item.index for item in got.data] == [0, 1]
            for item, vector in zip(got.data, expected, strict=True):
                assert np.allclose(item.embedding, vector, atol=1e-6)
        assert np.linalg.norm(expected[0]) == pytest.approx(1.0, abs=1e-6)
        assert local.post("/v1/embeddings", input="word " * 1000).status == 400


def test_tokens_and_templates_and_properties() -> None:
    with serving(ServerConfig(port=0, alias="mine"), n_slots=3) as local:
        tokens = local.post("/tokenize", content="hello world").json["tokens"]
        assert local.post("/detokenize", tokens=tokens).json["content"].strip() == "hello world"
        pieces = local.post("/tokenize", content="hello world", with_pieces=True).json["tokens"]
        assert [piece["id"] for piece in pieces] == tokens
        prompt = local.post("/apply-template", messages=[{"role": "user", "content": "hi there"}]).json["prompt"]
        assert "hi there" in prompt
        props = local.ask("GET", "/props").json
        assert (props["model_alias"], props["total_slots"], props["n_ctx"]) == ("mine", 3, 256)
        assert local.ask("GET", "/v1/models").json["data"][0]["id"] == "mine"
        assert local.ask("GET", "/v1/models/anything").json["id"] == "mine"
        assert local.ask("GET", "/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
