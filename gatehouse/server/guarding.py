"""Middleware of every server: limits the body, sets security headers, counts and times calls, and shows the counts."""

import time
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest

from gatehouse.server import problems
from gatehouse.server.problems import Problem, Show

_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
Next = Callable[[Request], Awaitable[Response]]
Ended = Callable[[Request, int], Awaitable[None]]


def guard(app: FastAPI, largest_body: int, show: Show, ended: Ended | None = None) -> None:
    """Add the middleware to an app, and the route `/metrics`.

    Args:
        app: The app.
        largest_body: Maximum bytes of a request body.
        show: Shows a problem to the caller.
        ended: Called with each call and the status of its answer.
    """
    registry = CollectorRegistry()
    calls = Counter("gatehouse_calls", "Answered calls.", ["method", "route", "status"], registry=registry)
    seconds = Histogram("gatehouse_call_seconds", "Time to answer.", ["route"], registry=registry)

    @app.middleware("http")
    async def _guard(request: Request, proceed: Next) -> Response:
        began = time.perf_counter()
        length = request.headers.get("content-length", "")
        if (length and (not length.isdigit() or int(length) > largest_body)) or (
            not length and "transfer-encoding" in request.headers
        ):
            detail = f"Expected a body of a stated length, at most {largest_body:,} bytes."
            response = show(request, Problem(title="Content Too Large", status=413, detail=detail), {})
        else:
            try:
                response = await proceed(request)
            except Exception as error:  # Handled here, so that answers to faults also get headers and are counted.
                response = show(request, problems.unexpected(request, error), {})
        for name, value in _GUARDS.items():
            response.headers.setdefault(name, value)
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
