"""The routes for programs: the functions of the command line on the registry, and runs."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from gatehouse.registry.approval import ApproveRequest, ApproveResult, approve
from gatehouse.registry.explanation import (
    Act,
    CompareRequest,
    ExplainRequest,
    Explanation,
    VersionComparison,
    VersionSummary,
    compare,
    explain,
)
from gatehouse.registry.stage import PromoteResult, RegisterResult
from gatehouse.server import registry, runs
from gatehouse.server.access import Access, Promoter, Reader, Runner
from gatehouse.server.problems import answers
from gatehouse.server.registry import (
    Acting,
    Model,
    Promotion,
    Registration,
    Resolved,
    Server,
    Word,
    require_named,
    require_version,
)
from gatehouse.server.tokens import Token
from gatehouse.store.store import ArtifactStore

READS = answers(401, 403, 404, 422, 429, 500, 503)
CHANGES = answers(400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
Name = Annotated[str, Path(pattern=registry.MODEL, description="Name of a model.")]
Version = Annotated[str, Path(pattern=registry.VERSION, description="NAME:2 or NAME@champion.")]
VersionQuery = Annotated[str, Query(pattern=registry.VERSION, description="NAME:2 or NAME@champion.")]
RunId = Annotated[str, Path(pattern=r"^[0-9]{8}-[0-9]{6}-[0-9a-f]{4}$", description="Id of a run.")]
router = APIRouter(prefix="/v1")


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


def _store(request: Request) -> ArtifactStore:
    return _server(request).store


@router.get("/resolve/{model}", responses=READS, tags=["models"])
def resolve(request: Request, token: Reader, model: Version) -> Resolved:
    """Say which version a name means now, and where its model lies."""
    return _server(request).resolved(model)


@router.get("/models", responses=READS, tags=["models"])
def list_models(request: Request, token: Reader) -> Sequence[Model]:
    """List the registered models."""
    return registry.models(_store(request))


@router.get("/models/{name}", responses=READS, tags=["models"])
def show_model(request: Request, token: Reader, name: Name) -> Model:
    """Show a model: its versions, and which of them holds each alias."""
    return registry.model(_store(request), name)


@router.get("/models/{name}/versions", responses=READS, tags=["models"])
def list_versions(request: Request, token: Reader, name: Name) -> Sequence[VersionSummary]:
    """List the versions of a model, with their numbers."""
    return registry.versions(_store(request), name)


@router.get("/models/{name}/ledger", responses=READS, tags=["models"])
def show_ledger(request: Request, token: Reader, name: Name) -> Sequence[Act]:
    """Show all that happened to a model."""
    return registry.history(_store(request), name)


@router.get("/explain/{model}", responses=READS, tags=["models"])
def explain_version(request: Request, token: Reader, model: Version) -> Explanation:
    """Explain a version: data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    require_named(_store(request), model)
    return explain(ExplainRequest(model=model), _store(request))


@router.get("/compare", responses=READS, tags=["models"])
def compare_versions(request: Request, token: Reader, first: VersionQuery, second: VersionQuery) -> VersionComparison:
    """Compare two versions: every number, and what changed in what they were made from."""
    for version in (first, second):
        require_named(_store(request), version)
    return compare(CompareRequest(first=first, second=second), _store(request))


@router.post("/models/{name}/register", responses=CHANGES, tags=["changes"])
def register(request: Request, token: Runner, name: Name, body: Registration) -> RegisterResult:
    """Enter what an evaluation says of its candidate in the ledger, under the policy of the server's project."""
    server = _server(request)
    return server.changed(registry.enter(server.store, name, body, server.project, token))


@router.post("/models/{name}/approve", responses=CHANGES, tags=["changes"])
def approve_version(request: Request, token: Promoter, name: Name, body: Word) -> ApproveResult:
    """Sign that a version may be promoted, for some days."""
    return sign(_server(request), token, name, "approve", body)


@router.post("/models/{name}/reject", responses=CHANGES, tags=["changes"])
def reject_version(request: Request, token: Promoter, name: Name, body: Word) -> ApproveResult:
    """Sign that a version may not be promoted."""
    return sign(_server(request), token, name, "reject", body)


@router.post("/models/{name}/promote", responses=CHANGES, tags=["changes"])
def promote_version(request: Request, token: Promoter, name: Name, body: Promotion) -> PromoteResult:
    """Give a version an alias, by default make it the champion."""
    return _act(request, token, name, "promote", body)


@router.post("/models/{name}/rollback", responses=CHANGES, tags=["changes"])
def roll_back(request: Request, token: Promoter, name: Name, body: Acting) -> PromoteResult:
    """Take the champion out of production, or another version out of its alias."""
    return _act(request, token, name, "rollback", body)


@router.post("/models/{name}/archive", responses=CHANGES, tags=["changes"])
def archive_version(request: Request, token: Promoter, name: Name, body: Acting) -> PromoteResult:
    """Keep a version for the record only."""
    return _act(request, token, name, "archive", body)


@router.post("/runs", responses=CHANGES, status_code=202, tags=["runs"])
def submit_run(request: Request, response: Response, token: Runner, body: runs.Submission) -> runs.Run:
    """Run a pipeline of the server's project on its machine; the answer's Location is where to follow it."""
    server = _server(request)
    if body.scope != "run":
        access: Access = request.app.state.access
        access.require(request, token, body.scope)
    run = runs.submit(server.store, server.project.folder if server.project else None, body, token.name)
    response.headers["Location"] = f"/v1/runs/{run.id}"
    return run


@router.get("/runs", responses=READS, tags=["runs"])
def list_runs(request: Request, token: Reader) -> Sequence[runs.Run]:
    """List the newest runs that were submitted, without their stages."""
    return runs.newest(_store(request))


@router.get("/runs/{run}", responses=READS, tags=["runs"])
def follow_run(request: Request, token: Reader, run: RunId) -> runs.Run:
    """Say how far a run is: PENDING, RUNNING, SUCCEEDED or FAILED, with its stages."""
    return runs.followed(_store(request), run)


def sign(server: Server, token: Token, name: str, word: str, body: Word) -> ApproveResult:
    """Sign the last verdict on a version in the name of a token."""
    require_version(server.store, name, body.version)
    fields = body.model_dump() | {"model_name": name, "word": word, "by": token.name}
    return server.changed(approve(ApproveRequest.model_validate(fields), server.store))


def _act(request: Request, token: Token, name: str, action: str, body: Acting | Promotion) -> PromoteResult:
    server = _server(request)
    return server.changed(registry.act(server.store, name, action, body, token))
