"""The stage that registers a model which something else trained, behind the same gate."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.exemption import rules_of
from gatehouse.registry.external import bound_evaluation, publish_files, record_statements
from gatehouse.registry.ledger import WRITES_LEDGER, Ledger
from gatehouse.registry.naming import NAME
from gatehouse.registry.registration import differing
from gatehouse.registry.stage import RegisterRequest, RegisterResult, register
from gatehouse.runtime.redaction import redacted, without_secrets
from gatehouse.store.identity import identity_of
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore


class RegisterModelRequest(StageModel):
    """A model's file or folder, its evaluation, and what a person says of it, without secrets.

    `evaluation` is a reference; or empty, and `judged` is the folder that the judge wrote. Without a policy that of the
    evaluation applies. `statements` has texts named data, code, environment, parents, reason and pickle_reason.
    """

    model_name: str = Field(pattern=NAME)
    path: str
    evaluation: str = ""
    judged: str = ""
    policy: GatePolicy | None = None
    statements: dict[str, Annotated[str, AfterValidator(redacted)]] = Field(default_factory=dict)
    settings: Annotated[dict[str, Any], AfterValidator(without_secrets)] = Field(default_factory=dict)


class RegisterModelResult(RegisterResult):
    """The decision, with the model and the evaluation that it is about."""

    model: str
    evaluation: str


@stage("register_model", title="Register a model behind the gate", effects=WRITES_LEDGER)
def register_model(request: RegisterModelRequest, store: ArtifactStore) -> RegisterModelResult:
    """Record the gate's verdict on a model of any origin in the ledger, as `register` does for Gatehouse's own.

    Raises:
        PickleError: if a file may run code when it is loaded, and `statements` do not say why.
        WrongEvaluationError: if the evaluation judged other files, or does not name them, or has another policy.
        ConfigurationError: if there is no evaluation, or two.
        StaleVerdictError: if it compares with another champion than the present one.
    """
    name = request.model_name
    model = publish_files(store, name, request.path, request.statements.get("pickle_reason", ""))
    evaluation = bound_evaluation(store, name, model, request.evaluation, request.judged)
    record_statements(store, model, request.statements, request.settings)
    judged = store.manifest(evaluation)
    policy = request.policy or GatePolicy.model_validate(judged.configuration["policy"])
    before = Ledger(store, name).state().last_verdict(judged.derived_from.get("champion", ""))
    result = register(RegisterRequest(model_name=name, model=model, evaluation=evaluation, policy=policy), store)
    warnings = [*result.warnings, *(str(rule) for rule in rules_of(store, evaluation) if rule.warns)]
    if before and (
        names := differing(store.manifest(before[1].evaluation).configuration["policy"], identity_of(policy))
    ):
        warnings.append(f"the policy is another than that by which the champion was judged: {names} differ")
    warnings += [f"{file} may run code when it is loaded" for file in store.manifest(model).details["pickles"]]
    return RegisterModelResult(**dict(result) | {"warnings": tuple(warnings)}, model=model, evaluation=evaluation)
