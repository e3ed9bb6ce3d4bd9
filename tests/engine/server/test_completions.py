"""Replies over HTTP are those of the engine: whole and streamed, alone and in company."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from openai import BadRequestError, OpenAI

from engine import ContextParams, create_context, load_model
from engine.generate import GenerateParams, TextDelta, generate
from engine.prompt import Message, PromptBuilder
from engine.sampling import SamplerParams
from engine.server.config import ServerConfig
from engine.session import Session
from tests.engine.server.serving import TINY, serving

EXACT: Any = {"extra_body": {"ignore_eos": True}, "temperature": 0}
QUESTION: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "how tall is a giraffe"}]


def own_reply(messages: list[dict[str, str]], n_predict: int) -> str:
    """What the engine says without a server."""
    with load_model(TINY, n_threads=1) as model:
        ctx = create_context(model, ContextParams(n_ctx=256, type_k="f32", type_v="f32"))
        prompts = PromptBuilder(model.chat_template, model.tokenizer)
        turns = prompts.turns([Message(str(i), m["role"], m["content"]) for i, m in enumerate(messages)], "reply")
        params = GenerateParams(SamplerParams(temperature=0), n_predict, ignore_eog=True)
        text = "".join(e.text for e in generate(Session(ctx), turns, params) if isinstance(e, TextDelta))
        ctx.close()
    return text


def streamed(client: OpenAI, messages: Any, n: int) -> tuple[str, list[str | None], Any]:
    """(text, finish reasons, usage) of a stream."""
    text, reasons, usage = "", [], None
    options: Any = {"include_usage": True}
    with client.chat.completions.create(
        model="x", messages=messages, max_tokens=n, stream=True, stream_options=options, **EXACT
    ) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons.append(choice.finish_reason)
    return text, reasons, usage


def test_a_chat_says_what_the_engine_says_whole_and_streamed() -> None:
    expected = own_reply(QUESTION, 12)
    assert expected
    with serving() as local, local.client() as client:
        whole = client.chat.completions.create(model="x", messages=QUESTION, max_tokens=12, **EXACT)
        assert whole.choices[0].message.content == expected
        assert whole.choices[0].finish_reason == "length"
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 12
        text, reasons, usage = streamed(client, QUESTION, 12)
        assert text == expected
        assert reasons[-1] == "length"
        assert set(reasons[:-1]) == {None}
        assert usage.prompt_tokens == whole.usage.prompt_tokens
        assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_replies_made_together_are_those_made_alone() -> None:
    chats: list[Any] = [[{"role": "user", "content": f"{'say ' * (5 * i)} {i}"}] for i in range(10)]
    with serving(n_slots=4) as local, local.client() as client, ThreadPoolExecutor(10) as pool:
        alone = [streamed(client, chat, 20)[0] for chat in chats]
        for slot in range(4):
            local.ask("POST", f"/slots/{slot}?action=erase")
        assert list(pool.map(lambda chat: streamed(client, chat, 20)[0], chats)) == alone
        assert local.metric("prompt_tokens_total") > 0
        assert local.n_busy() == 0


def test_choices_and_seeds() -> None:
    with serving() as local, local.client() as client:
        params: Any = {"model": "x", "prompt": "once", "max_tokens": 8, "temperature": 1.5, "n": 3}
        first, again = (client.completions.create(**params, seed=7) for _ in range(2))
        texts = [choice.text for choice in first.choices]
        assert texts == [choice.text for choice in again.choices]
        assert len(set(texts)) == 3
        assert [choice.index for choice in first.choices] == [0, 1, 2]
        assert client.completions.create(**params | {"n": 1}, seed=8).choices[0].text == texts[1]


def test_several_prompts_of_text_and_of_ids() -> None:
    with serving() as local, local.client() as client:
        ids = [local.post("/tokenize", content=text, add_special=True).json["tokens"] for text in ("one", "two")]
        params: Any = {"model": "x", "max_tokens": 6, **EXACT}
        of_text = client.completions.create(prompt=["one", "two"], **params)
        of_ids = client.completions.create(prompt=ids, **params)
        assert [c.text for c in of_text.choices] == [c.text for c in of_ids.choices]
        assert of_ids.choices[1].text == client.completions.create(prompt=ids[1], **params).choices[0].text


def test_logprobs_are_those_of_the_logits() -> None:
    with load_model(TINY, n_threads=1) as model:
        ctx = create_context(model, ContextParams(n_ctx=64, type_k="f32", type_v="f32"))
        session = Session(ctx)
        ids = model.tokenizer.encode("once")
        list(generate(session, ids, GenerateParams(n_predict=0)))
        logits = session.logits().astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum())
        best = np.argsort(-expected, kind="stable")[:3]
        pieces = [model.tokenizer.token_to_piece(int(token)).decode(errors="replace") for token in best]
        ctx.close()
    with serving() as local, local.client() as client:
        got = client.completions.create(model="x", prompt="once", max_tokens=1, logprobs=3, **EXACT).choices[0].logprobs
        assert got is not None
        assert got.token_logprobs == pytest.approx([expected[best[0]]], abs=1e-6)
        assert got.top_logprobs is not None
        assert got.top_logprobs[0] == pytest.approx(dict(zip(pieces, expected[best], strict=True)), abs=1e-6)
        chat = client.chat.completions.create(
            model="x", messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=2, **EXACT
        )
        assert chat.choices[0].logprobs is not None
        content = chat.choices[0].logprobs.content
        assert content is not None
        assert len(content) == 3
        assert all(token.top_logprobs[0].token == token.token for token in content)


def test_stop_strings_and_bias() -> None:
    with serving() as local, local.client() as client:
        params: Any = {"model": "x", "prompt": "once", "max_tokens": 12, **EXACT}
        text = client.completions.create(**params).choices[0].text
        stop = text[4:6]
        got = client.completions.create(**params, stop=[stop]).choices[0]
        assert (got.text, got.finish_reason) == (text[: text.index(stop)], "stop")
        token = local.post("/tokenize", content="a", add_special=False).json["tokens"][-1]
        biased = client.completions.create(**params, logit_bias={str(token): 100}).choices[0].text
        assert biased == local.post("/detokenize", tokens=[token] * 12).json["content"].rjust(len(biased))


def test_a_prompt_that_does_not_fit_is_refused_by_name() -> None:
    with serving(n_ctx=64) as local, local.client() as client:
        for is_stream in (False, True):
            with pytest.raises(BadRequestError) as caught:
                client.completions.create(model="x", prompt="many words " * 99, max_tokens=1, stream=is_stream)
            assert caught.value.code == "context_length_exceeded"
        text = client.completions.create(model="x", prompt="few", **EXACT)
        assert text.choices[0].finish_reason == "length"
        assert text.usage is not None
        assert text.usage.total_tokens == 65  # the last one is not computed


def test_context_shift_lets_old_turns_leave_and_knows_the_chat_again() -> None:
    messages: Any = [{"role": "system", "content": "sys"}]
    with serving(ServerConfig(port=0, context_shift=True), n_ctx=128) as local, local.client() as client:
        for i in range(12):
            messages.append({"role": "user", "content": f"message {i} of a long chat"})
            reply = client.chat.completions.create(model="x", messages=messages, max_tokens=10, **EXACT)
            assert reply.choices[0].finish_reason == "length"
            assert reply.usage is not None
            assert reply.usage.completion_tokens == 10
            assert reply.usage.prompt_tokens < 128
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        assert local.metric("prompt_tokens_reused_total") > 300
        text = client.completions.create(model="x", prompt="many words " * 99, max_tokens=4, **EXACT)
        assert text.usage is not None
        assert text.usage.completion_tokens == 4
