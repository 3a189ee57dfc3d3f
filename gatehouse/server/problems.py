"""Errors as problem details (RFC 9457), with the project's messages; what passes is told from what comes again."""

import logging
import math
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from gatehouse.errors import (
    ConfigurationError,
    CorruptArtifactError,
    GatehouseError,
    InvalidReferenceError,
    MissingArtifactError,
    PredictionError,
)
from gatehouse.registry.approval import ApprovalError
from gatehouse.registry.state import LedgerError, StaleVerdictError

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
_STATUS: dict[type[GatehouseError], int] = {
    InvalidReferenceError: 422,
    ConfigurationError: 422,
    MissingArtifactError: 404,
    ApprovalError: 409,
    StaleVerdictError: 409,
    CorruptArtifactError: 500,
    LedgerError: 500,
    PredictionError: 500,
}
_RETRY_SECONDS = 5


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field("about:blank", description="`about:blank`: the status says what kind of problem it is.")
    title: str = Field(description="The name of the error.")
    status: int = Field(description="The status of the answer.")
    detail: str = Field(description="What was expected, what was found, and what to do.")


class ProblemError(Exception):
    """A problem that only a server has: no token, not allowed, too often, not found."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, headers or {}


def status_of(error: GatehouseError) -> int:
    """4xx for what every repetition would meet again, 500 for damage in the store, 503 for what may pass by itself."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return 409 if error.permanent else 503


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route declares of the problems that it may answer with."""
    body = {"model": Problem, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {status: body | {"description": HTTPStatus(status).phrase} for status in sorted(statuses)}


Show = Callable[[Request, Problem, dict[str, str]], Response]


def show_json(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem for a program."""
    return JSONResponse(problem.model_dump(), problem.status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI, show: Show) -> None:
    """Have every error of an app shown by `show`. What was sent is never repeated: it may hold a secret."""

    def tell(request: Request, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> Response:
        return show(request, Problem(title=title, status=status, detail=detail), dict(headers or {}))

    @app.exception_handler(GatehouseError)
    def _known(request: Request, error: GatehouseError) -> Response:
        status = status_of(error)
        headers = {"Retry-After": str(_RETRY_SECONDS)} if status == 503 else {}
        return tell(request, status, type(error).__name__, str(error), headers)

    @app.exception_handler(ProblemError)
    def _of_the_server(request: Request, error: ProblemError) -> Response:
        return tell(request, error.status, HTTPStatus(error.status).phrase, error.detail, error.headers)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        found = (f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors())
        return tell(request, 422, "Unprocessable Content", "; ".join(found))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return tell(request, error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail), headers)


def unexpected(request: Request, error: Exception) -> Problem:
    """A fault of the server: the log has it, the caller is told no more than that."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Problem(title="Internal Server Error", status=500, detail="The server failed; its log says why.")


def too_often(seconds: float) -> ProblemError:
    """That a caller has to wait."""
    wait = math.ceil(seconds)
    return ProblemError(429, f"Too many calls with this token: try again in {wait} s.", {"Retry-After": str(wait)})
