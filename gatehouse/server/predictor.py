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
from pydantic import BaseModel, ValidationError

from gatehouse.errors import GatehouseError
from gatehouse.server import problems
from gatehouse.server.access import Access, caller
from gatehouse.server.inference import Inference, ServedModel, TensorSchema
from gatehouse.server.problems import Problem, ProblemError, guard
from gatehouse.training.transformation import FeatureError

logger = logging.getLogger(__name__)

LARGEST_BODY = 16 * 1024 * 1024  # bytes
_MODEL = "/v2/models/{name}"
_VERSION = f"{_MODEL}/versions/{{version}}"


class Following:
    """The present model, which is reloaded when its alias moves. A request reads `model` once, so it mixes no versions.

    Every so many seconds, `newer` returns the model that replaces the present one, or None if that is current.
    """

    def __init__(
        self,
        model: ServedModel,
        newer: Callable[[ServedModel], ServedModel | None] | None = None,
        seconds: float = 10.0,
    ) -> None:
        self.model = model
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
        """Load a newer model; if that fails, keep the present model."""
        try:
            loaded = self._newer(self.model) if self._newer else None
        except Exception:  # Whatever is wrong with the next model, the present one stays in use.
            logger.exception("%s:%s is served on", self.model.name, self.model.version)
            return
        if loaded is not None:
            self.model = loaded
            logger.info("%s:%s is %s", loaded.name, loaded.version, loaded.model)

    def _follow(self) -> None:
        while not self._ended.wait(self._seconds):
            self.look()


class Live(BaseModel):
    """The server runs."""

    live: bool = True


class Ready(BaseModel):
    """The server, or the model of this name, can answer."""

    ready: bool = True
    name: str = ""


class Described(BaseModel):
    """Inputs and outputs of a model. If a request has only its `keys`, features are read from the online store."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSchema]
    outputs: list[TensorSchema]
    parameters: dict[str, Any]


def _model_of_path(request: Request) -> ServedModel:
    """The served model, which the path of the request must name."""
    model: ServedModel = request.app.state.followed.model
    parameters = request.path_params
    if parameters.get("name", model.name) != model.name or parameters.get("version", model.version) != model.version:
        name = ":".join(parameters[part] for part in ("name", "version") if part in parameters)
        raise ProblemError(404, f"Expected the model {model.name}, version {model.version}, found {name}.")
    return model


PathModel = Annotated[ServedModel, Depends(_model_of_path)]


async def _inference(request: Request) -> Inference:
    """The request; its content type does not matter."""
    try:
        return Inference.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def create_app(followed: Following, access: Access | None = None) -> FastAPI:
    """The server of one model, for callers with a token of `access`, or for everybody."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        followed.start()
        yield
        followed.close()
        if access:
            access.tokens.close()

    app = FastAPI(title="Gatehouse predictor", version="2", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.followed, app.state.access = followed, access
    problems.install(app, _show)
    guard(app, LARGEST_BODY, _show)
    admitted = [Depends(caller("read"))] if access else []

    @app.get("/v2")
    def server() -> dict[str, Any]:
        """Name the server."""
        return {"name": "gatehouse", "version": metadata.version("gatehouse"), "extensions": []}

    @app.get("/v2/health/live")
    def live() -> Live:
        """Say that the server runs."""
        return Live()

    @app.get("/v2/health/ready")
    @app.get(f"{_VERSION}/ready")
    @app.get(f"{_MODEL}/ready")
    def ready(model: PathModel) -> Ready:
        """Say whether the model answers; 503 where the online store that it reads does not."""
        if model.online is not None:
            try:
                model.online.require_materialized()
            except GatehouseError as error:
                raise ProblemError(503, str(error)) from error
        return Ready(name=model.name)

    @app.get(_VERSION, dependencies=admitted)
    @app.get(_MODEL, dependencies=admitted)
    def described(model: PathModel) -> Described:
        """Describe the inputs and outputs of the model."""
        keys = [tensor.model_dump() for tensor in model.online.inputs] if model.online else []
        return Described(
            name=model.name,
            versions=[model.version],
            platform=str(model.predictor.description["architecture"]["model"]["architecture"]),
            inputs=model.inputs,
            outputs=model.outputs,
            parameters={"model": model.model, "keys": keys, "classes": list(model.classes)},
        )

    @app.post(f"{_VERSION}/infer", dependencies=admitted)
    @app.post(f"{_MODEL}/infer", dependencies=admitted)
    def infer(model: PathModel, body: Annotated[Inference, Depends(_inference)]) -> Response:
        """Score rows."""
        try:
            return JSONResponse(model.infer(body))
        except FeatureError as error:
            raise ProblemError(400, str(error)) from error

    return app


def _show(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem in the form of the protocol, in which a wrong request is a 400."""
    return JSONResponse({"error": problem.detail}, 400 if problem.status == 422 else problem.status, headers)
