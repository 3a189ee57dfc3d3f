"""The predictor server: a model behind KServe's Open Inference Protocol (version 2) over REST."""

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge
from pydantic import BaseModel, ValidationError

from gatehouse.errors import GatehouseError
from gatehouse.server import problems
from gatehouse.server.access import Access, caller
from gatehouse.server.inference import Inference, ServedModel, TensorSchema
from gatehouse.server.prediction_log import PredictionLog
from gatehouse.server.problems import Problem, ProblemError, guard
from gatehouse.server.traffic import Answer, Shadowing, Traffic, is_callers
from gatehouse.training.transformation import FeatureError

logger = logging.getLogger(__name__)

LARGEST_BODY = 16 * 1024 * 1024  # bytes
_MODEL = "/v2/models/{name}"
_VERSION = f"{_MODEL}/versions/{{version}}"


class Following:
    """The present traffic, which follows the ledger. A request reads `traffic` once, so it sees one state of it.

    Every so many seconds, `newer` returns the traffic that replaces the present one, which is itself if it is current.
    """

    def __init__(
        self, traffic: Traffic, newer: Callable[[Traffic], Traffic] | None = None, seconds: float = 10.0
    ) -> None:
        self.traffic = traffic
        self._newer, self._seconds = newer, seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="following", daemon=True)

    def start(self) -> None:
        """Check repeatedly, in a thread."""
        if self._newer is not None:
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def look(self) -> None:
        """Load newer models; if that fails, keep the present ones."""
        try:
            loaded = self._newer(self.traffic) if self._newer else self.traffic
        except Exception:  # Whatever is wrong with the next model, the present one stays in use.
            logger.exception("%s is served on", self.traffic)
            return
        if loaded is not self.traffic:
            self.traffic = loaded
            logger.info("serving %s", loaded)

    def _follow(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()


class Live(BaseModel):
    """The server runs."""

    live: bool = True


class Ready(BaseModel):
    """The server, or the model of this name, can answer, with the champion or the version in the path."""

    ready: bool = True
    name: str = ""
    version: str = ""


class Described(BaseModel):
    """Inputs and outputs of a model. If a request has only its `keys`, features are read from the online store."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSchema]
    outputs: list[TensorSchema]
    parameters: dict[str, Any]


def _traffic_of_path(request: Request) -> Traffic:
    """The present traffic, in which the path of the request must name the model, and perhaps one of the versions."""
    traffic: Traffic = request.app.state.followed.traffic
    parameters, versions = request.path_params, [model.version for model in traffic.every]
    name = traffic.champion.name
    if parameters.get("name", name) != name or parameters.get("version", versions[0]) not in versions:
        requested = ":".join(parameters[part] for part in ("name", "version") if part in parameters)
        raise ProblemError(404, f"Expected the model {name}, version {' or '.join(versions)}, found {requested}.")
    return traffic


PathTraffic = Annotated[Traffic, Depends(_traffic_of_path)]


def _model_of_path(request: Request, traffic: PathTraffic) -> ServedModel:
    """The model of the version in the path, else the champion."""
    return traffic.named(request.path_params.get("version", "")) or traffic.champion


PathModel = Annotated[ServedModel, Depends(_model_of_path)]


async def _inference(request: Request) -> Inference:
    """The request; its content type does not matter."""
    try:
        return Inference.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def create_app(followed: Following, access: Access | None = None, log: PredictionLog | None = None) -> FastAPI:
    """The server of one model, for callers with a token of `access`, or for everybody; `log` gets every answer."""
    registry = CollectorRegistry()
    rows = Counter(
        "gatehouse_rows",
        "Rows by arm; a failed one is answered by the champion, if at all.",
        registry=registry,
        labelnames=["arm", "version", "error"],
    )
    dropped = Gauge("gatehouse_dropped_rows", "Rows that shadow and log left out.", ["by"], registry=registry)

    def record(answer: Answer) -> None:
        for part in answer.parts:
            rows.labels(part.arm, part.model.version, part.error).inc(len(part.rows))
        if log:
            log.add(answer)

    shadowing = Shadowing(record)
    dropped.labels("shadow").set_function(lambda: shadowing.waiting.dropped)
    dropped.labels("log").set_function(lambda: log.dropped if log else 0)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        followed.start()
        shadowing.start()
        if log:
            log.start()
        yield
        followed.close()
        shadowing.close()
        if log:
            log.close()
        if access:
            access.tokens.close()

    app = FastAPI(title="Gatehouse predictor", version="2", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.followed, app.state.access = followed, access
    problems.install(app, _show)
    guard(app, LARGEST_BODY, _show, registry=registry)
    admitted = [Depends(caller("read"))] if access else []

    @app.get("/v2")
    def server() -> dict[str, Any]:
        """Name the server."""
        return {"name": "gatehouse", "version": metadata.version("gatehouse"), "extensions": []}

    @app.get("/v2/health/live")
    async def live() -> Live:
        """Say that the server runs, also while all threads score."""
        return Live()

    @app.get("/v2/health/ready")
    @app.get(f"{_VERSION}/ready")
    @app.get(f"{_MODEL}/ready")
    def ready(model: PathModel) -> Ready:
        """Say whether the model answers; 503 where the online store that it reads does not, or the server ends."""
        if app.state.draining:
            raise ProblemError(503, "The server ends.")
        if model.online is not None:
            try:
                model.online.require_materialized()
            except GatehouseError as error:
                raise ProblemError(503, str(error)) from error
        return Ready(name=model.name, version=model.version)

    @app.get(_VERSION, dependencies=admitted)
    @app.get(_MODEL, dependencies=admitted)
    def described(traffic: PathTraffic, model: PathModel) -> Described:
        """Describe the inputs and outputs of the model."""
        keys = [tensor.model_dump() for tensor in model.online.inputs] if model.online else []
        identity = [tensor.model_dump() for tensor in model.identity]
        return Described(
            name=model.name,
            versions=[other.version for other in traffic.every],
            platform=str(model.predictor.description["architecture"]["model"]["architecture"]),
            inputs=model.inputs,
            outputs=model.outputs,
            parameters={"model": model.model, "keys": keys, "identity": identity, "classes": list(model.classes)}
            | ({"aliases": traffic.numbers, "share": traffic.share} if traffic.records else {}),
        )

    @app.post(f"{_VERSION}/infer", dependencies=admitted)
    @app.post(f"{_MODEL}/infer", dependencies=admitted)
    def infer(request: Request, traffic: PathTraffic, body: Annotated[Inference, Depends(_inference)]) -> Response:
        """Score rows."""
        answer = traffic.answer(body, request.path_params.get("version", ""))
        if not is_callers(answer.failure):
            record(answer)
        if isinstance(answer.failure, FeatureError):
            raise ProblemError(400, str(answer.failure)) from answer.failure
        if answer.failure:
            raise answer.failure
        shadowing.add(traffic, answer)
        return JSONResponse(traffic.body(answer))

    return app


def _show(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem in the form of the protocol, in which a wrong request is a 400."""
    return JSONResponse({"error": problem.detail}, 400 if problem.status == 422 else problem.status, headers)
