"""The server: routes for programs and people, health, metrics, and how every answer is guarded."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import GatehouseError
from gatehouse.project import Project
from gatehouse.server import api, pages, problems
from gatehouse.server.access import Access
from gatehouse.server.problems import Problem, answers
from gatehouse.server.rate import Rate
from gatehouse.server.state import Server

_LARGEST_BODY = 65_536  # bytes
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_GUARDS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
Next = Callable[[Request], Awaitable[Response]]


class Health(BaseModel):
    """That the server lives, or can answer."""

    status: Literal["live", "ready"]


def create_app(store: ArtifactStore, project: Project | None = None, rate: Rate | None = None) -> FastAPI:
    """The server of a store.

    Args:
        store: Holds ledgers, artifacts, tokens and run records.
        project: Whose runs may be submitted, and under whose policy candidates are registered; None for neither.
        rate: How often each token may call; by default 50 a second, and 100 at once.
    """
    server, access = Server(store, project), Access(store, rate or Rate(50, 100))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(_warm, server, access)
        yield
        server.close()
        access.tokens.close()

    app = FastAPI(title="Gatehouse", version="1", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.server, app.state.access = server, access
    app.include_router(api.router)
    app.include_router(pages.router)
    _observe(app)
    problems.install(app, pages.show)
    return app


def _warm(server: Server, access: Access) -> None:
    """Learn tokens and aliases before the first call; a store that does not answer is told by `/health/ready`."""
    try:
        access.tokens.get("")
        server.warm()
    except GatehouseError as error:
        problems.logger.warning("nothing is known yet: %s", error)


def _observe(app: FastAPI) -> None:
    """Add health and metrics, and guard, measure and bound every call."""
    registry = CollectorRegistry()
    calls = Counter("gatehouse_calls", "Answered calls.", ["method", "route", "status"], registry=registry)
    seconds = Histogram("gatehouse_call_seconds", "Time to answer.", ["route"], registry=registry)

    @app.middleware("http")
    async def _guard(request: Request, proceed: Next) -> Response:
        began = time.perf_counter()
        length = request.headers.get("content-length", "")
        if (length and (not length.isdigit() or int(length) > _LARGEST_BODY)) or (
            not length and "transfer-encoding" in request.headers
        ):
            detail = f"Expected a body of a stated length, at most {_LARGEST_BODY:,} bytes."
            response = problems.show_json(request, Problem(title="Content Too Large", status=413, detail=detail), {})
        else:
            try:
                response = await proceed(request)
            except Exception as error:  # Every answer is guarded and counted here, also that of a fault.
                response = pages.show(request, problems.unexpected(request, error), {})
        for name, value in _GUARDS.items():
            response.headers.setdefault(name, value)
        route = getattr(request.scope.get("route"), "path", "none")
        calls.labels(request.method if request.method in _METHODS else "other", route, response.status_code).inc()
        seconds.labels(route).observe(time.perf_counter() - began)
        return response

    @app.get("/health/live", tags=["health"])
    def live() -> Health:
        """Say that the server runs."""
        return Health(status="live")

    @app.get("/health/ready", tags=["health"], responses=answers(503))
    def ready(request: Request) -> Health:
        """Say whether the store answers; 503 where it does not. What was resolved before is given all the same."""
        if not request.app.state.server.answers():
            raise problems.ProblemError(503, "The store does not answer.", {"Retry-After": "5"})
        return Health(status="ready")

    @app.get("/metrics", tags=["health"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def metrics() -> Response:
        """Give calls and their times for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
