"""`/health`, `/v1/models`, `/props` and `/metrics`: what is served, and how it is doing."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from engine.generate import GenerateParams
from engine.server.served import Served, served_of

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Source: prometheus.io/docs/instrumenting/exposition_formats."""


async def health(request: Request) -> JSONResponse:
    """Whether requests are taken."""
    if served_of(request).scheduler.is_running:
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "ending"}, 503)


async def models(request: Request) -> JSONResponse:
    """The one model."""
    return JSONResponse({"object": "list", "data": [_model(served_of(request))]})


async def model(request: Request) -> JSONResponse:
    """The model, whatever name it is asked by: there is only one."""
    return JSONResponse(_model(served_of(request)))


def _model(served: Served) -> dict[str, object]:
    opened = served.model
    return {
        "id": served.name,
        "object": "model",
        "created": int(served.started_at),
        "owned_by": "local",
        "meta": {
            "n_vocab": served.n_vocab,
            "n_ctx_train": opened.n_ctx_train,
            "n_embd": opened.hparams.n_embd,
            "n_params": opened.n_params,
            "size": opened.size_bytes,
        },
    }


async def props(request: Request) -> JSONResponse:
    """Properties of the server."""
    served = served_of(request)
    tokenizer, template = served.model.tokenizer, served.model.chat_template
    infos = served.scheduler.infos()
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    return JSONResponse({
        "model_alias": served.name,
        "model_path": served.model.path.name,
        "total_slots": len(infos),
        "n_ctx": infos[0].n_ctx,
        "chat_template": template.source,
        "bos_token": "" if bos is None else tokenizer.token_text(bos),
        "eos_token": "" if eos is None else tokenizer.token_text(eos),
        "default_generation_settings": {"n_ctx": infos[0].n_ctx, "params": asdict(GenerateParams().sampler)},
        "context_shift": served.config.context_shift,
    })  # fmt: skip


async def metrics(request: Request) -> PlainTextResponse:
    """Counters in Prometheus' text form."""
    served = served_of(request)
    counters, infos = served.counters, served.scheduler.infos()
    rows = (
        ("requests_total", "counter", "Requests taken.", counters.n_requests),
        ("requests_refused_total", "counter", "Requests refused because too many waited.", counters.n_refused),
        ("jobs_cancelled_total", "counter", "Replies whose client had gone.", counters.n_cancelled),
        ("jobs_failed_total", "counter", "Replies that failed.", counters.n_failed),
        ("prompt_tokens_total", "counter", "Tokens of prompts computed.", counters.n_prompt_tokens),
        ("prompt_tokens_reused_total", "counter", "Tokens of prompts found in the cache.", counters.n_reused_tokens),
        ("prompt_seconds_total", "counter", "Time of replies until their first token.", counters.prefill_s),
        ("tokens_predicted_total", "counter", "Tokens generated.", counters.n_generated_tokens),
        ("tokens_predicted_seconds_total", "counter", "Time of replies from there on.", counters.gen_s),
        ("requests_processing", "gauge", "Slots in use.", sum(info.is_processing for info in infos)),
        ("requests_deferred", "gauge", "Requests that wait for a slot.", served.scheduler.n_waiting),
        ("kv_cache_tokens", "gauge", "Tokens in the slots' caches.", sum(info.n_tokens for info in infos)),
    )
    text = "".join(
        f"# HELP causerie_{name} {what}\n# TYPE causerie_{name} {kind}\ncauserie_{name} {value}\n"
        for name, kind, what, value in rows
    )
    return PlainTextResponse(text, media_type=METRICS_TYPE)
