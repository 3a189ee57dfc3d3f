"""The server: routes for programs and people, and health."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from gatehouse.errors import GatehouseError
from gatehouse.project.project import Project
from gatehouse.server import pages, problems, routes
from gatehouse.server.access import Access, Rate, ServiceAccounts
from gatehouse.server.problems import answers, guard
from gatehouse.server.routes import Server
from gatehouse.store.store import ArtifactStore

_LARGEST_BODY = 65_536  # bytes


class Health(BaseModel):
    """The state of the server."""

    status: Literal["live", "ready"]


def create_app(
    store: ArtifactStore,
    project: Project | None = None,
    rate: Rate | None = None,
    profile: Path | None = None,
    accounts: ServiceAccounts | None = None,
) -> FastAPI:
    """Create the server of a store.

    Runs of `project` may be submitted, on the platform of `profile` or else on this machine, and its policy applies to
    candidates. Each token has 50 calls a second, and 100 at once, unless `rate` says otherwise. `accounts` are callers
    with tokens of Kubernetes.
    """
    server, access = Server(store, project, profile), Access(store, rate or Rate(50, 100), accounts)

    def read_ahead() -> None:
        """Read tokens and aliases before the first call; `/health/ready` reports a store that does not answer."""
        try:
            access.tokens.get("")
            server.warm()
        except GatehouseError as error:
            problems.logger.warning("nothing is known yet: %s", error)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(read_ahead)
        server.start()
        yield
        server.close()
        access.tokens.close()

    app = FastAPI(title="Gatehouse", version="1", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.server, app.state.access = server, access
    app.include_router(routes.router)
    app.include_router(pages.router)
    guard(app, _LARGEST_BODY, pages.show, access.tell_outcome)

    @app.get("/health/live", tags=["health"])
    def live() -> Health:
        """Say that the server runs."""
        return Health(status="live")

    @app.get("/health/ready", tags=["health"], responses=answers(503))
    def ready() -> Health:
        """Say whether the store answers; 503 where it does not. Models that were resolved before are still given."""
        if not server.answers():
            raise problems.ProblemError(503, "The store does not answer.", {"Retry-After": "5"})
        return Health(status="ready")

    problems.install(app, pages.show)
    return app
