"""The predictor server: a model behind KServe's Open Inference Protocol (version 2) over REST."""

from collections.abc import AsyncIterator
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
from gatehouse.server.binary_tensors import HEADER, packed, unpacked
from gatehouse.server.following import Following
from gatehouse.server.guarding import guard
from gatehouse.server.inference import Inference, ServedModel, TensorSchema
from gatehouse.server.problems import Problem, ProblemError
from gatehouse.training.transformation.columns import FeatureError

LARGEST_BODY = 16 * 1024 * 1024  # bytes
_MODEL = "/v2/models/{name}"
_VERSION = f"{_MODEL}/versions/{{version}}"


class Live(BaseModel):
    """That the server runs."""

    live: bool = True


class Ready(BaseModel):
    """That the server, or the model of this name, can answer."""

    ready: bool = True
    name: str = ""


class Described(BaseModel):
    """What a model takes and gives. With keys alone, where there are some, features are read from the online store."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorSchema]
    outputs: list[TensorSchema]
    parameters: dict[str, Any]


def create_app(followed: Following, access: Access | None = None) -> FastAPI:
    """The server of one model.

    Args:
        followed: What is served.
        access: Whose tokens may ask; None for everybody.
    """

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
    _add_health(app)
    _add_model(app, [Depends(caller("read"))] if access else [])
    return app


def _asked_model(request: Request) -> ServedModel:
    """The model that is served as this request is answered, which its path must name."""
    model: ServedModel = request.app.state.followed.model
    asked = request.path_params
    if asked.get("name", model.name) != model.name or asked.get("version", model.version) != model.version:
        found = ":".join(asked[part] for part in ("name", "version") if part in asked)
        raise ProblemError(404, f"Expected the model {model.name}, version {model.version}, found {found}.")
    return model


Asked = Annotated[ServedModel, Depends(_asked_model)]


async def _inference(request: Request) -> Inference:
    """What is asked, in JSON or with tensors as bytes after it."""
    asked = unpacked(await request.body(), request.headers.get(HEADER))
    try:
        return Inference.model_validate(asked)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def _add_health(app: FastAPI) -> None:
    """Add what an orchestrator asks."""

    @app.get("/v2")
    def server() -> dict[str, Any]:
        """Say what the server is."""
        return {"name": "gatehouse", "version": metadata.version("gatehouse"), "extensions": ["binary_tensor_data"]}

    @app.get("/v2/health/live")
    def live() -> Live:
        """Say that the server runs."""
        return Live()

    @app.get("/v2/health/ready")
    @app.get(f"{_VERSION}/ready")
    @app.get(f"{_MODEL}/ready")
    def ready(model: Asked) -> Ready:
        """Say whether the model answers; 503 where the online store that it reads does not."""
        if model.online is not None:
            try:
                model.online.require_materialized()
            except GatehouseError as error:
                raise ProblemError(503, str(error)) from error
        return Ready(name=model.name)


def _add_model(app: FastAPI, admitted: list[Any]) -> None:
    """Add what clients ask, who must be `admitted`."""

    @app.get(_VERSION, dependencies=admitted)
    @app.get(_MODEL, dependencies=admitted)
    def described(model: Asked) -> Described:
        """Say what the model takes and gives."""
        keys = [each.model_dump() for each in model.online.inputs] if model.online else []
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
    def infer(model: Asked, asked: Annotated[Inference, Depends(_inference)]) -> Response:
        """Score rows."""
        try:
            answer = model.infer(asked)
        except FeatureError as error:
            raise ProblemError(400, str(error)) from error
        if not (names := asked.binary_outputs([each.name for each in model.outputs])):
            return JSONResponse(answer)
        body, length = packed(answer, names)
        return Response(body, headers={HEADER: str(length)}, media_type="application/octet-stream")


def _show(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem as the protocol has it: what was sent wrongly is a 400."""
    return JSONResponse({"error": problem.detail}, 400 if problem.status == 422 else problem.status, headers)
