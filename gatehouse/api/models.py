"""Registered models: search of versions, what is known of one, and what a person may do with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gatehouse.api.records import Selection, select
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy, LiveRules
from gatehouse.project.place import find
from gatehouse.project.project import Project
from gatehouse.registry.approval import ApproveResult, approve
from gatehouse.registry.explanation import Act, Number, act_of, numbers_of, provenance_of, settings_of
from gatehouse.registry.ledger import ALIASES, Ledger, model_names
from gatehouse.registry.naming import named
from gatehouse.registry.registration import require_policy
from gatehouse.registry.rollout_stage import (
    RecordRequest,
    StepRequest,
    StepResult,
    logged_arms,
    record_live,
    sections_of,
    step_rollout,
)
from gatehouse.registry.stage import PromoteRequest, PromoteResult, RegisterRequest, RegisterResult, promote
from gatehouse.registry.stage import register as enter
from gatehouse.store.erasure import erasure_of
from gatehouse.store.records import flat
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    from gatehouse.registry.live_stage import LiveResult


@dataclass(frozen=True)
class Version:
    """A registered version, NAME:2: its metrics on the test part, with intervals in `numbers`, and how it was trained.

    `status` is its highest alias, `candidate`, `replaced`, `rolled back` or `archived`; `, erased` is added where its
    files are. `judged_against` is the champion of its last verdict, and `verdict_digest` is what an approval names.
    """

    version: str
    status: str
    aliases: tuple[str, ...]
    registered: datetime | None
    metrics: Mapping[str, float]
    judged_against: str
    model: str
    tags: Mapping[str, str]
    by: str
    name: str = field(repr=False)
    number: int = field(repr=False)
    evaluation: str = field(repr=False)
    verdict: str = field(repr=False)
    verdict_digest: str = field(repr=False)
    numbers: tuple[Number, ...] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)
    made_from: tuple[str, ...] = field(repr=False)


def versions(
    store: ArtifactStore,
    name: str = "",
    trained_on: str = "",
    where: Sequence[str] = (),
    sort: str = "",
    most: int = 0,
) -> Selection[Version]:
    """The versions of all models or one, by default the oldest first: those that meet all conditions.

    `trained_on` names an artifact from which they were made, at any distance. Conditions and `sort` name a field, a
    metric, a setting or a tag, as `select` describes. Raises ConfigurationError if there is no such model or name.
    """
    origin = str(find(store, trained_on)) if trained_on else ""
    listed = []
    for model in [named(store, name).ledger.model_name] if name else model_names(store):
        ledger = Ledger(store, model)
        records, state = ledger.records(), ledger.state()
        for version in state.versions:
            if origin and origin not in version.lineage:
                continue
            last, at = state.last_verdict(version.model), records[version.registered_at - 1].provenance.get("at")
            erased = ", erased" if erasure_of(store.objects, Reference.parse(version.model)) else ""
            numbers = numbers_of(store, version.evaluation)
            listed.append(
                Version(
                    version=f"{model}:{version.version}",
                    name=model,
                    number=version.version,
                    status=state.stage_of(version) + erased,
                    aliases=state.aliases_of(version.version),
                    registered=datetime.fromisoformat(str(at)) if at else None,
                    by=str(provenance_of(store, version.model).get("by", "")),
                    model=version.model,
                    evaluation=version.evaluation,
                    metrics={number.name: number.value for number in numbers},
                    judged_against=(last[1].champion if last else "") or "no champion",
                    verdict=last[1].summary if last else "",
                    verdict_digest=last[1].short if last else "",
                    tags=dict(version.tags),
                    numbers=numbers,
                    settings={} if erased else flat(settings_of(store, version.model)),
                    made_from=version.lineage,
                )
            )
    return select(listed, where, sort, most)


@dataclass(frozen=True)
class Model:
    """A registered model: how many versions it has, and which of them holds each alias."""

    name: str
    versions: int
    aliases: dict[str, int]


def models(store: ArtifactStore) -> list[Model]:
    """Every registered model."""
    return [model(store, name) for name in model_names(store)]


def model(store: ArtifactStore, name: str) -> Model:
    """One registered model. Raises ConfigurationError if there is none of this name."""
    state = named(store, name).ledger.state()
    return Model(name, len(state.versions), {alias: state.holder(alias) for alias in ALIASES if state.holder(alias)})


def history(store: ArtifactStore, name: str) -> list[Act]:
    """The ledger of a model, record by record. Raises ConfigurationError if there is none of this name."""
    return [act_of(number, record) for number, record in enumerate(named(store, name).ledger.records(), start=1)]


def act(store: ArtifactStore, text: str, action: str, **details: Any) -> tuple[str, PromoteResult]:
    """Promote, roll back or archive the version that a text names; the name of its model, and what was done.

    A promotion without a version takes the one in staging, a rollback the champion. `details` are fields of
    `PromoteRequest`. Raises ConfigurationError if there is no such version, or one is needed.
    """
    ledger, number = named(store, text)
    if not number and action == "archive":
        raise ConfigurationError(f"archive: expected a version, such as {ledger.model_name}:2, found {text!r}.")
    number = number or (ledger.state().champion if action == "rollback" else 0)
    body = {"model_name": ledger.model_name, "action": action, "version": number}
    return ledger.model_name, promote(PromoteRequest.model_validate(body | details), store)


def compare_live(
    store: ArtifactStore, name: str, rules: LiveRules, log: str, outcomes: str, read: Mapping[str, str]
) -> "LiveResult":
    """Compare canary and champion on live outcomes, a file or a reference, and record the verdict in the ledger.

    `read` are the fields of `LiveRequest` that say how labels are read.
    """
    from gatehouse.registry.live_stage import LiveRequest, evaluate_live, published_outcomes

    table = published_outcomes(store, outcomes)
    result = evaluate_live(LiveRequest(model_name=name, log=log, outcomes=table, rules=rules, **read), store)
    record_live(RecordRequest(evaluation=result.evaluation), store)
    return result


def roll_out(
    store: ArtifactStore, name: str, policy: GatePolicy, outcomes: str, read: Mapping[str, str]
) -> tuple[StepResult, str]:
    """Look at a rollout and take its next step; the step, and the live evaluation, which is empty without a log.

    Raises ConfigurationError if the policy has no section `live`, or a canary was logged and there are no outcomes.
    """
    from gatehouse.registry.live_stage import published_outcomes

    rules, steps = sections_of(policy.model_dump(mode="json"))
    table = published_outcomes(store, outcomes) if outcomes else ""  # A wrong name is one before the first row, too.
    log, evaluation = logged_arms(store, name), ""
    if log:
        evaluation = compare_live(store, name, rules, log, table, read).evaluation
    return step_rollout(StepRequest(model_name=name, rules=rules, rollout=steps), store), evaluation


def sign(
    store: ArtifactStore, text: str, action: str, reason: str, digest: str, by: str = ""
) -> tuple[str, ApproveResult]:
    """Approve or reject the verdict of a digest, the last on a version, by default the one in staging.

    Returns the name of its model, and the signature.
    """
    ledger, number = named(store, text)
    return ledger.model_name, approve(store, ledger.model_name, number, action, reason, digest, by)


def register(store: ArtifactStore, name: str, evaluation: str, project: Project | None, by: str) -> RegisterResult:
    """Register what an evaluation judged, under the policy of the server's project.

    Raises ConfigurationError if the server has no project, or its project is that of another model.
    """
    if project is None or project.file.model != name:
        present = f"one for {project.file.model}" if project else "no project"
        raise ConfigurationError(
            f"{name} is registered under the policy of its project: expected `gatehouse serve --project` with that of "
            f"{name}, found {present}."
        )
    candidate = store.manifest(evaluation).derived_from.get("model", "")
    require_policy(store, evaluation, project.policy)
    return enter(RegisterRequest(model_name=name, model=candidate, evaluation=evaluation, by=by), store)
