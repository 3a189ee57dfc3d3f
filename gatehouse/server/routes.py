"""The routes for programs: the functions that the command line calls too, and runs of the server's project."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from gatehouse.api import data, events, models, pipelines, runs, tuning
from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.kfp_api.client import KfpApi
from gatehouse.project.platforms import load_platform
from gatehouse.project.project import Project
from gatehouse.registry.approval import ApproveResult
from gatehouse.registry.explanation import (
    Act,
    Explanation,
    VersionComparison,
    compare,
    explain,
)
from gatehouse.registry.ledger import ALIASES, model_names
from gatehouse.registry.naming import named
from gatehouse.registry.stage import PromoteResult, RegisterResult
from gatehouse.server.access import Body, Promoter, Reader, Runner, Sender, Token
from gatehouse.server.background import Background
from gatehouse.server.cache import ReadCache
from gatehouse.server.problems import answers
from gatehouse.store.store import ArtifactStore

MODEL = r"^[a-z][a-z0-9-]{0,63}$"
VERSION = r"^[a-z][a-z0-9-]{0,63}(:[0-9]{1,9}|@[a-z]{1,20})$"
EVENT = {"schema": {"type": "object"}}
READS = answers(401, 403, 404, 422, 429, 500, 503)
CHANGES = answers(400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
Name = Annotated[str, Path(pattern=MODEL, description="Name of a model.")]
Version = Annotated[str, Path(pattern=VERSION, description="NAME:2 or NAME@champion.")]
VersionQuery = Annotated[str, Query(pattern=VERSION, description="NAME:2 or NAME@champion.")]
RunId = Annotated[str, Path(pattern=r"^[0-9a-z][0-9a-z.-]{0,79}$", description="Id of a run.")]
Where = Annotated[
    list[Annotated[str, Field(max_length=500)]],
    Query(max_length=20, description="NAME=VALUE, NAME=LOW..HIGH, NAME<VALUE; all must hold."),
]
Sort = Annotated[str, Query(max_length=200, description="A name, the smallest first; -NAME: the largest first.")]
Most = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
Text = Annotated[str, Query(max_length=1000)]
T = TypeVar("T")
router = APIRouter(prefix="/v1")


class Resolved(BaseModel):
    """A version: what it is, where its model lies, and how old this knowledge is."""

    name: str
    version: int
    stage: str
    aliases: tuple[str, ...]
    model: str = Field(description="The reference of the model.")
    address: str = Field(description="The model in the store of the server.")
    evaluation: str
    age_seconds: float = Field(
        0.0, description="Age of the answer: seconds since the ledger was read. Above 1 s, the store does not answer."
    )


class Acting(BaseModel):
    """An act on a version. It names the version, so that a repeat changes nothing."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, lt=10**9, description="Number of the version.")
    reason: str = Field("", max_length=2000, description="Why; it is kept in the ledger.")


class Promotion(Acting):
    """A promotion."""

    version: int = Field(0, ge=0, lt=10**9, description="0 is the version in staging.")
    override: bool = Field(False, description="Promote although the gate refused it; needs a reason.")
    to: str = Field("champion", max_length=20, description=f"The alias that it gets: {', '.join(ALIASES)}.")
    share: float | None = Field(None, ge=0, le=1, description="Share of the requests for a canary; first 0.05.")


class Review(Acting):
    """A person's review of the last verdict on a version."""

    version: int = Field(0, ge=0, lt=10**9, description="0 is the version in staging.")
    reason: str = Field(
        min_length=1, max_length=2000, pattern=r"\S", description="Why, in words; it is kept in the ledger."
    )
    verdict: str = Field(
        max_length=71, description="Digest of the verdict that was read: `verdict_digest` of versions."
    )


class Registration(BaseModel):
    """An evaluation that judged a candidate under the policy of the server's project."""

    model_config = ConfigDict(extra="forbid")

    evaluation: str = Field(max_length=500, description="Reference of the evaluation.")


class Server:
    """The shared state of a server's routes: its store, its project and its platform, and recently resolved versions.

    `profile` is the file of the platform; None for runs on this machine.
    """

    def __init__(self, store: ArtifactStore, project: Project | None, profile: FilePath | None = None) -> None:
        self.store, self.project, self.profile = store, project, profile
        self.background = Background(store, project, profile) if project else None
        self._versions = ReadCache(self._resolve)

    def _resolve(self, text: str) -> Resolved:
        which = named(self.store, text)
        version, state = which.version, which.ledger.state()
        return Resolved(
            name=which.ledger.model_name,
            version=version.version,
            stage=state.stage_of(version),
            aliases=state.aliases_of(version.version),
            model=version.model,
            address=self.store.address_of(version.model),
            evaluation=version.evaluation,
        )

    def resolved(self, text: str) -> Resolved:
        """The version that a text names; while the store does not answer, the last known one, with its age."""
        cached = self._versions.get(text)
        return cached.value.model_copy(update={"age_seconds": round(cached.age, 3)})

    def changed(self, result: T) -> T:
        """Return the result of a change, and read versions again, so that the caller sees the change at once."""
        self._versions.forget()
        if self.background:
            self.background.changed.set()
        return result

    def sign(self, token: Token, name: str, action: str, body: Review) -> ApproveResult:
        """Sign the last verdict on a version in the name of a token."""
        return self.changed(
            models.sign(self.store, _text(name, body.version), action, body.reason, body.verdict, token.name)[1]
        )

    def warm(self) -> None:
        """Resolve every alias once, so that a new server can answer even if the store stops answering."""
        for entry in models.models(self.store):
            for alias in entry.aliases:
                self.resolved(f"{entry.name}@{alias}")

    def answers(self) -> bool:
        """Whether the store answers."""
        try:
            model_names(self.store)
        except GatehouseError:
            return False
        return True

    def kfp(self) -> KfpApi:
        """Kubeflow Pipelines on its platform."""
        assert self.profile, "it has a platform"
        platform = load_platform(self.profile)
        return KfpApi.connect(platform.endpoint, platform.namespace)

    def start(self) -> None:
        """Start its own work."""
        if self.background:
            self.background.start()

    def close(self) -> None:
        """End its threads."""
        self._versions.close()
        if self.background:
            self.background.close()


def _server(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


def _store(request: Request) -> ArtifactStore:
    return _server(request).store


def _text(name: str, version: int) -> str:
    return f"{name}:{version}" if version else name


def _plain(result: Any) -> Any:
    """A result as JSON; numbers that JSON lacks become null."""
    return json.loads(to_json(result, inf_nan_mode="null", timedelta_mode="float", fallback=str))


@router.get("/resolve/{model}", responses=READS, tags=["models"])
def resolve(request: Request, token: Reader, model: Version) -> Resolved:
    """Say which version a name means now, and where its model lies."""
    return _server(request).resolved(model)


@router.get("/models", responses=READS, tags=["models"])
def list_models(request: Request, token: Reader) -> Sequence[models.Model]:
    """List the registered models."""
    return models.models(_store(request))


@router.get("/models/{name}", responses=READS, tags=["models"])
def show_model(request: Request, token: Reader, name: Name) -> models.Model:
    """Show a model: its versions, and which of them holds each alias."""
    return models.model(_store(request), name)


@router.get("/versions", responses=READS, tags=["models"])
def search_versions(
    request: Request,
    token: Reader,
    model: Annotated[str, Query(pattern=f"^$|{MODEL}")] = "",
    trained_on: Text = "",
    where: Where = [],  # noqa: B006 - FastAPI copies it
    sort: Sort = "",
    most: Most = 100,
) -> Sequence[models.Version]:
    """Search versions by ranges of their metrics, settings and tags, and by what they were made from."""
    return models.versions(_store(request), model, trained_on, where, sort, most).records


@router.get("/models/{name}/ledger", responses=READS, tags=["models"])
def show_ledger(request: Request, token: Reader, name: Name) -> Sequence[Act]:
    """Show all that happened to a model."""
    return models.history(_store(request), name)


@router.get("/explain/{model}", responses=READS, tags=["models"])
def explain_version(request: Request, token: Reader, model: Version) -> Explanation:
    """Explain a version: data, code, configuration, environment, seeds, parents, who and why; and its lineage."""
    return explain(_store(request), model)


@router.get("/compare", responses=READS, tags=["models"])
def compare_versions(request: Request, token: Reader, first: VersionQuery, second: VersionQuery) -> VersionComparison:
    """Compare two versions: every number, and what changed in what they were made from."""
    return compare(_store(request), first, second)


@router.post("/models/{name}/register", responses=CHANGES, tags=["changes"])
def register(request: Request, token: Runner, name: Name, body: Registration) -> RegisterResult:
    """Enter what an evaluation says of its candidate in the ledger, under the policy of the server's project."""
    server = _server(request)
    return server.changed(models.register(server.store, name, body.evaluation, server.project, token.name))


@router.post("/models/{name}/approve", responses=CHANGES, tags=["changes"])
def approve_version(request: Request, token: Promoter, name: Name, body: Review) -> ApproveResult:
    """Sign that a version may be promoted, for some days."""
    return _server(request).sign(token, name, "approve", body)


@router.post("/models/{name}/reject", responses=CHANGES, tags=["changes"])
def reject_version(request: Request, token: Promoter, name: Name, body: Review) -> ApproveResult:
    """Sign that a version may not be promoted."""
    return _server(request).sign(token, name, "reject", body)


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


def _act(request: Request, token: Token, name: str, action: str, body: Acting) -> PromoteResult:
    server, details = _server(request), body.model_dump(exclude={"version"})
    acted = models.act(server.store, _text(name, body.version), action, by=token.name, **details)
    return server.changed(acted[1])


@router.post("/runs", responses=CHANGES, status_code=202, tags=["runs"])
def submit_run(request: Request, response: Response, token: Runner, body: pipelines.Submission) -> pipelines.Run:
    """Run a pipeline of the server's project, on its platform or here; the answer's Location is where to follow it."""
    server = _server(request)
    _require_runs(request, token, [body.pipeline])
    folder = server.project.folder if server.project else None
    run = pipelines.submit(server.store, folder, body, token.name, server.profile)
    response.headers["Location"] = f"/v1/runs/{run.id}"
    return run


def _require_runs(request: Request, token: Token, names: Iterable[str]) -> None:
    """Require what a token needs to run pipelines: two of them can change the champion."""
    if {"promotion", "rollout"}.intersection(names):
        request.app.state.access.require(request, token, "promote")


@router.post(
    "/events",
    responses=CHANGES,
    status_code=202,
    tags=["runs"],
    openapi_extra={"requestBody": {"required": True, "content": dict.fromkeys(events.MEDIA_TYPES, EVENT)}},
)
def take_event(request: Request, token: Sender, body: Body) -> Sequence[events.Order]:
    """Take a CloudEvent, or a notification of S3: the runs that the project's triggers order for it, each once."""
    server = _server(request)
    if server.project is None:
        raise ConfigurationError("This server runs no project: expected `gatehouse serve --project FOLDER`.")
    event = events.read_event(request.headers, body)
    triggers = events.matching(server.project, event)
    _require_runs(request, token, [trigger.pipeline or name for name, trigger in triggers.items()])
    orders = events.take(server.store, server.project, event, token.name)
    return [events.submit(server.store, server.project.folder, server.profile, order) for order in orders]


@router.get("/runs", responses=READS, tags=["runs"])
def list_runs(request: Request, token: Reader, most: Most = 50) -> Sequence[pipelines.Run]:
    """List the newest runs of pipelines."""
    return pipelines.newest(_store(request), most)


@router.get("/runs/{run}", responses=READS, tags=["runs"])
def follow_run(request: Request, token: Reader, run: RunId) -> pipelines.Run:
    """Say how far a run is, with its stages."""
    server = _server(request)
    return pipelines.run(server.store, run, server.kfp if server.profile else None)


@router.get("/tracked-runs", responses=READS, tags=["runs"])
def search_runs(
    request: Request,
    token: Reader,
    where: Where = [],  # noqa: B006 - FastAPI copies it
    sort: Sort = "",
    most: Most = 100,
) -> Sequence[dict[str, Any]]:
    """Search the runs that MLflow tracks by ranges of their parameters, metrics and tags; by default the newest."""
    return [run.to_json() for run in runs.search(runs.reader(_store(request)), where, sort, most).records]


@router.get("/curves", responses=READS, tags=["runs"])
def compare_runs(
    request: Request,
    token: Reader,
    run: Annotated[list[Annotated[str, Field(max_length=100)]], Query(min_length=1, max_length=runs.MOST_RUNS)],
    metric: Annotated[list[Annotated[str, Field(max_length=250)]], Query(max_length=50)] = [],  # noqa: B006 - as above
) -> dict[str, Any]:
    """Compare tracked runs: what differs, and the values of their metrics by step."""
    compared: dict[str, Any] = _plain(runs.compare(runs.reader(_store(request)), run, metric).to_json())
    return compared


@router.get("/artifacts", responses=READS, tags=["data"])
def list_artifacts(
    request: Request, token: Reader, kind: Annotated[str, Query(pattern=r"^([a-z][a-z0-9-]*)?$", max_length=100)] = ""
) -> Sequence[data.Artifact]:
    """List the artifacts of the store, with their state."""
    return data.artifacts(_store(request), kind)


@router.get("/experiments", responses=READS, tags=["data"])
def list_experiments(
    request: Request, token: Reader, model: Annotated[str, Query(pattern=f"^$|{MODEL}")] = ""
) -> Sequence[dict[str, Any]]:
    """List the experiments of the store, or of one model: the one that was last changed first."""
    return [_plain(experiment.to_json()) for experiment in tuning.experiments(_store(request), model)]
