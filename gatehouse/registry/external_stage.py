"""The stage that registers a model which something else trained, behind the same gate."""

from typing import Any

from pydantic import Field

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.external import bound_evaluation, publish_files, tell
from gatehouse.registry.ledger import WRITES_LEDGER
from gatehouse.registry.stage import RegisterRequest, RegisterResult, register
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

UNKNOWN_FILES = "the evaluation does not say which files made its scores: give judge the model"


class RegisterModelRequest(StageModel):
    """A model's file or folder, its evaluation, and what a person says of it.

    `evaluation` is a reference; or empty, and `judged` is the folder that the judge wrote. Without a policy the one of
    the evaluation applies. `told` has texts by the names data, code, environment, parents, reason and allow_pickle.
    """

    model_name: str = Field(pattern="^[a-z][a-z0-9-]*$")
    path: str
    evaluation: str = ""
    judged: str = ""
    policy: GatePolicy | None = None
    told: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class RegisterModelResult(RegisterResult):
    """The decision, with the model and the evaluation that it is about."""

    model: str
    evaluation: str


@stage("register_model", title="Register a model behind the gate", effects=WRITES_LEDGER)
def register_model(request: RegisterModelRequest, store: ArtifactStore) -> RegisterModelResult:
    """Record the gate's verdict on a model of any origin in the ledger, as `register` does for Gatehouse's own.

    Raises:
        PickleError: if the files hold a pickle, and `told` does not say why they may.
        WrongEvaluationError: if the evaluation judged other files, or by another policy.
        ConfigurationError: if there is no evaluation.
        StaleVerdictError: if it compares with another champion than the present one.
    """
    name = request.model_name
    model = publish_files(store, name, request.path, request.told.get("allow_pickle", ""))
    evaluation = bound_evaluation(store, name, model, request.evaluation, request.judged)
    manifest = store.manifest(evaluation)
    tell(store, model, request.told, request.settings)
    policy = request.policy or GatePolicy.model_validate(manifest.configuration["policy"])
    result = register(RegisterRequest(model_name=name, model=model, evaluation=evaluation, policy=policy), store)
    warnings = result.warnings if manifest.details.get("files") else (*result.warnings, UNKNOWN_FILES)
    return RegisterModelResult(**dict(result) | {"warnings": warnings}, model=model, evaluation=evaluation)
