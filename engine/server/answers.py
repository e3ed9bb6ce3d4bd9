"""Answers in OpenAI's form: errors with their status, and lines of an event stream."""

from __future__ import annotations

import json

from starlette.responses import JSONResponse

from engine.errors import (
    BackendError,
    ChatTemplateError,
    ContextFullError,
    EngineError,
    RequestError,
    SamplingParamError,
    StateFileError,
)
from engine.scheduler import QueueFullError, SchedulerClosedError

RETRY_AFTER_S = "1"
DONE = b"data: [DONE]\n\n"


class BadRequestError(RequestError):
    """A request with something wrong in it.

    Attributes:
        param: the field at fault, or "".
        status: of HTTP.
        code: a word that programs may look at, or "".
    """

    def __init__(self, reason: str, param: str = "", status: int = 400, code: str = "") -> None:
        super().__init__(reason, param)
        self.reason, self.param, self.status, self.code = reason, param, status, code

    def __str__(self) -> str:
        return f"{self.param}: {self.reason}" if self.param else self.reason


def error_object(
    message: str, kind: str = "invalid_request_error", param: str = "", code: str = ""
) -> dict[str, object]:
    """An error as clients expect it."""
    return {"error": {"message": message, "type": kind, "param": param or None, "code": code or None}}


def error_response(
    status: int, message: str, *, kind: str = "invalid_request_error", param: str = "", code: str = ""
) -> JSONResponse:
    """An error as a whole answer."""
    headers = {"retry-after": RETRY_AFTER_S} if status == 429 else None
    return JSONResponse(error_object(message, kind, param, code), status, headers)


def describe(error: Exception) -> tuple[int, str, str, str]:
    """(status, type, param, code) of an error of the engine."""
    match error:
        case BadRequestError():
            return error.status, "invalid_request_error", error.param, error.code
        case QueueFullError():
            return 429, "rate_limit_error", "", "queue_full"
        case SchedulerClosedError():
            return 503, "server_error", "", "ending"
        case ContextFullError():
            return 400, "invalid_request_error", "", "context_length_exceeded"
        case SamplingParamError():
            return 400, "invalid_request_error", error.name, ""
        case ChatTemplateError():
            return 400, "invalid_request_error", "messages", "chat_template"
        case RequestError() | StateFileError():
            return 400, "invalid_request_error", "", ""
        case BackendError():
            return 500, "server_error", "", "backend"
        case _:
            return 500, "server_error", "", ""


def response_of(error: Exception) -> JSONResponse:
    """An error of the engine as a whole answer."""
    status, kind, param, code = describe(error)
    return error_response(status, sentence(error), kind=kind, param=param, code=code)


def stream_error(error: Exception) -> bytes:
    """An error in the middle of an event stream."""
    _, kind, param, code = describe(error)
    return event(error_object(sentence(error), kind, param, code))


def sentence(error: Exception) -> str:
    """What an error says, on one line; nothing of what is not ours."""
    return " ".join(str(error).split()) if isinstance(error, EngineError) else "the server could not do this"


def event(values: dict[str, object]) -> bytes:
    """One event of a stream."""
    return b"data: " + json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n\n"
