"""The predictor server: one version of a model behind KServe's Open Inference Protocol (version 2) over REST."""

from importlib import metadata
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from gatehouse.components.training.transformation.columns import FeatureError
from gatehouse.errors import GatehouseError
from gatehouse.server import problems
from gatehouse.server.guarding import guard
from gatehouse.server.inference import Inference, ServedModel, TensorSchema
from gatehouse.server.problems import Problem, ProblemError

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


def create_app(model: ServedModel) -> FastAPI:
    """The server of one version; it stays the same one until it is started again."""
    app = FastAPI(title=model.name, version=model.version, docs_url=None, redoc_url=None)
    problems.install(app, _show)
    guard(app, LARGEST_BODY, _show)

    def of_this_model(request: Request) -> None:
        asked = request.path_params
        if asked["name"] != model.name or asked.get("version", model.version) != model.version:
            found = ":".join(asked[part] for part in ("name", "version") if part in asked)
            raise ProblemError(404, f"Expected the model {model.name}, version {model.version}, found {found}.")

    named = [Depends(of_this_model)]

    @app.get("/v2")
    def server() -> dict[str, Any]:
        """Say what the server is."""
        return {"name": "gatehouse", "version": metadata.version("gatehouse"), "extensions": []}

    @app.get("/v2/health/live")
    def live() -> Live:
        """Say that the server runs."""
        return Live()

    @app.get("/v2/health/ready")
    @app.get(f"{_VERSION}/ready", dependencies=named)
    @app.get(f"{_MODEL}/ready", dependencies=named)
    def ready() -> Ready:
        """Say whether the model answers; 503 where the online store that it reads does not."""
        if model.online is not None:
            try:
                model.online.require_materialized()
            except GatehouseError as error:
                raise ProblemError(503, str(error)) from error
        return Ready(name=model.name)

    @app.get(_VERSION, dependencies=named)
    @app.get(_MODEL, dependencies=named)
    def described() -> Described:
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

    @app.post(f"{_VERSION}/infer", dependencies=named)
    @app.post(f"{_MODEL}/infer", dependencies=named)
    def infer(asked: Inference) -> Response:
        """Score rows."""
        try:
            return JSONResponse(model.infer(asked))
        except FeatureError as error:
            raise ProblemError(400, str(error)) from error

    return app


def _show(request: Request, problem: Problem, headers: dict[str, str]) -> Response:
    """A problem as the protocol has it: what was sent wrongly is a 400."""
    return JSONResponse({"error": problem.detail}, 400 if problem.status == 422 else problem.status, headers)
