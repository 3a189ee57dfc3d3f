"""Errors as problem details (RFC 9457), and the middleware that every server has.

While `app.state.draining`, as `gatehouse.server.draining` sets it, each answer ends its connection.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from gatehouse.api.pipelines import TooManyRunsError
from gatehouse.errors import (
    ConfigurationError,
    CorruptArtifactError,
    GatehouseError,
    InvalidReferenceError,
    MissingArtifactError,
    PredictionError,
)
from gatehouse.registry.approval import ApprovalError
from gatehouse.registry.ledger import LedgerError, StaleVerdictError
from gatehouse.registry.naming import UnknownVersionError

logger = logging.getLogger(__name__)
MEDIA_TYPE = "application/problem+json"
_STATUS: dict[type[GatehouseError], int] = {
    UnknownVersionError: 404,
    InvalidReferenceError: 422,
    ConfigurationError: 422,
    TooManyRunsError: 429,
    MissingArtifactError: 404,
    ApprovalError: 409,
    StaleVerdictError: 409,
    CorruptArtifactError: 500,
    LedgerError: 500,
    PredictionError: 500,
}
_RETRY_SECONDS = 5
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

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
    """4xx for permanent errors, 500 for damage in the store, 503 for errors that may pass."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return status
    return 409 if error.permanent else 503


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for its declaration."""
    body = {"model": Problem, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    return {status: body | {"description": HTTPStatus(status).phrase} for status in sorted(statuses)}


Show = Callable[[Request, Problem, dict[str, str]], Response]
Ended = Callable[[Request, int], Awaitable[None]]


def show_json(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem for a program."""
    return JSONResponse(problem.model_dump(), problem.status, headers, media_type=MEDIA_TYPE)


def install(app: FastAPI, show: Show) -> None:
    """Show every error of an app with `show`. The request is never repeated in the answer: it may hold a secret."""

    def send(request: Request, status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> Response:
        return show(request, Problem(title=title, status=status, detail=detail), dict(headers or {}))

    @app.exception_handler(GatehouseError)
    def _gatehouse_error(request: Request, error: GatehouseError) -> Response:
        status = status_of(error)
        headers = {"Retry-After": str(_RETRY_SECONDS)} if status == 503 else {}
        return send(request, status, type(error).__name__, str(error), headers)

    @app.exception_handler(ProblemError)
    def _of_the_server(request: Request, error: ProblemError) -> Response:
        return send(request, error.status, HTTPStatus(error.status).phrase, error.detail, error.headers)

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: RequestValidationError) -> Response:
        messages = (f"{'.'.join(map(str, detail['loc'])) or 'body'}: {detail['msg']}" for detail in error.errors())
        return send(request, 422, "Unprocessable Content", "; ".join(messages))

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        return send(request, error.status_code, HTTPStatus(error.status_code).phrase, str(error.detail), headers)


def guard(
    app: FastAPI,
    largest_body: int,
    show: Show,
    ended: Ended | None = None,
    registry: CollectorRegistry | None = None,
) -> None:
    """Add the middleware of every server: limits the body, sets security headers, counts and times calls at `/metrics`.

    `ended` is called with each call and the status of its answer. `registry` has the server's own metrics.
    """
    registry = registry or CollectorRegistry()
    calls = Counter("gatehouse_calls", "Answered calls.", ["method", "route", "status"], registry=registry)
    seconds = Histogram("gatehouse_call_seconds", "Time to answer.", ["route"], registry=registry)
    app.state.draining = False

    @app.middleware("http")
    async def _guard(request: Request, proceed: Callable[[Request], Awaitable[Response]]) -> Response:
        began = time.perf_counter()
        length = request.headers.get("content-length", "")
        # A body in chunks has no length, whatever a header beside them says.
        if "transfer-encoding" in request.headers or (length and (not length.isdigit() or int(length) > largest_body)):
            detail = f"Expected a body of a stated length, at most {largest_body:,} bytes."
            response = show(request, Problem(title="Content Too Large", status=413, detail=detail), {})
        else:
            try:
                response = await proceed(request)
            except Exception as error:  # Handled here, so that answers to faults also get headers and are counted.
                logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
                detail = "The server failed; its log says why."
                response = show(request, Problem(title="Internal Server Error", status=500, detail=detail), {})
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        if app.state.draining:  # The caller's next request needs a new connection, which leads elsewhere.
            response.headers["Connection"] = "close"
        route = getattr(request.scope.get("route"), "path", "none")
        if ended:
            await ended(request, response.status_code)
        calls.labels(request.method if request.method in _METHODS else "other", route, response.status_code).inc()
        seconds.labels(route).observe(time.perf_counter() - began)
        return response

    @app.get("/metrics", tags=["health"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def metrics() -> Response:
        """Give calls and their times for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
