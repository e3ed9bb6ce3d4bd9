"""The ASGI application: which handler answers which path, and what stands in front of all of them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from engine.errors import EngineError
from engine.server.answers import error_response, response_of
from engine.server.chat import chat_completions
from engine.server.completions import completions
from engine.server.guard import Guard
from engine.server.served import Served
from engine.server.slots import act_on_slot, list_slots
from engine.server.status import health, metrics, model, models, props
from engine.server.texts import apply_template, detokenize, embeddings, tokenize

ROUTES = (
    Route("/health", health),
    Route("/v1/health", health),
    Route("/v1/models", models),
    Route("/v1/models/{name:path}", model),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/apply-template", apply_template, methods=["POST"]),
    Route("/props", props),
    Route("/metrics", metrics),
    Route("/slots", list_slots),
    Route("/slots/{slot_id:int}", act_on_slot, methods=["POST"]),
)


def make_app(served: Served) -> Starlette:
    """The application for a model."""
    app = Starlette(
        routes=ROUTES,
        middleware=[Middleware(Guard, config=served.config)],
        exception_handlers={
            EngineError: _on_engine_error,
            MemoryError: _on_engine_error,
            OSError: _on_os_error,
            HTTPException: _on_http_error,
        },
        max_body_size=served.config.max_body_bytes,
    )
    app.state.served = served
    return app


async def _on_engine_error(request: Request, error: Exception) -> JSONResponse:
    return response_of(error)


async def _on_os_error(request: Request, error: Exception) -> JSONResponse:
    reason = error.strerror if isinstance(error, OSError) else None
    return error_response(500, f"the disk: {reason or 'an error'}", kind="server_error")


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, error.detail)
