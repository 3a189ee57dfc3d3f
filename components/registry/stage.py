"""The registry's stages: resolve the champion, register a judged candidate, promote by hand."""

from typing import Any

from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.identity import identity_of
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.evaluation.spec import GatePolicy
from gatehouse.components.registry import promote as promotion
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.projection import project
from gatehouse.components.registry.registration import decision_on, next_registration
from gatehouse.components.registry.resolve import policy_digest, resolve_champion
from gatehouse.components.registry.state import Subject, Verdict
from gatehouse.components.tracking.lineage import lineage_of
from gatehouse.errors import ConfigurationError, GatehouseError

_SEES_CHAMPIONS = Effects(reads="the ledger", why="Champions change without any parameter changing.")
_WRITES_LEDGER = Effects(
    reads="the ledger", writes="the ledger, MLflow", why="Appends to the ledger once; a repeat finds its record."
)


class WrongEvaluationError(GatehouseError):
    """An evaluation does not judge the candidate, or not under the policy, that it is presented for."""


class ResolveRequest(StageModel):
    """The candidate, the test set it will be measured on, and the policy it will be held against."""

    model_name: str
    candidate: str
    training_set: str
    split: str
    policy: GatePolicy


class ResolveResult(StageModel):
    """Identity of the champion that the candidate must compare with; empty for none."""

    champion: str


class RegisterRequest(StageModel):
    """A candidate and the evaluation that judged it."""

    model_name: str
    model: str
    evaluation: str
    policy: GatePolicy


class RegisterResult(StageModel):
    """What became of the candidate.

    `decision` is `approved`, `awaiting approval`, `refused`, `rolled back` or `archived`; `version` is 0 where there is
    none; `aliases` are those that the version holds now; `alias` is the highest of them, or empty.
    """

    decision: str
    version: int
    aliases: tuple[str, ...]
    alias: str
    reasons: tuple[str, ...]


class PromoteRequest(StageModel):
    """An act on one version: `promote`, `rollback` or `archive`. For `promote`, version 0 is the one in staging."""

    model_name: str
    action: str = "promote"
    version: int = 0
    reason: str = ""
    override: bool = False


class PromoteResult(StageModel):
    """The version that was acted on, what became of it, the aliases that it holds now, and the champion after the act.

    `decision` is `promoted`, `rolled back` or `archived`; `champion` is an identity, empty for none.
    """

    decision: str
    version: int
    aliases: tuple[str, ...]
    champion: str


class ChampionRequest(StageModel):
    """The name under which models are registered."""

    model_name: str


class ChampionResult(StageModel):
    """The champion and what it was trained on."""

    model: str
    training_set: str
    split: str


class NoChampionError(GatehouseError):
    """A model has no champion yet."""


@stage(
    "resolve",
    title="Resolve the champion",
    effects=_SEES_CHAMPIONS,
    resources=Resources(cpu="500m", memory="1G", minutes=5),
)
def resolve(request: ResolveRequest, store: ArtifactStore) -> ResolveResult:
    """Find the champion that the candidate must compare with: never the candidate itself."""
    digest = policy_digest(request.policy)
    champion = resolve_champion(
        store, request.model_name, request.candidate, request.training_set, request.split, digest
    )
    return ResolveResult(champion=champion)


@stage("register", title="Register behind the gate", effects=_WRITES_LEDGER)
def register(request: RegisterRequest, store: ArtifactStore) -> RegisterResult:
    """Enter the gate's verdict in the ledger, and show the ledger in MLflow where it changed.

    Registering again with nothing changed writes nothing.

    Raises:
        WrongEvaluationError: if the evaluation judges another model or policy, or compares the model with itself.
        StaleVerdictError: if the champion moved since the candidate was judged.
        CorruptArtifactError: if the candidate, or anything it was made from, does not verify.
    """
    verdict = verdict_of(request, store)
    ledger = Ledger(store, request.model_name)
    before = ledger.state()
    lineage: tuple[str, ...] = ()
    if next_registration(before, verdict, lineage) is not None:
        store.verify(request.model)
        lineage = lineage_of(store, request.model)
    state = ledger.extend(lambda current: next_registration(current, verdict, lineage))
    project(store, request.model_name, state)
    version = state.version_of(verdict.subject.model)
    number = version.version if version else 0
    aliases = state.aliases_of(number)
    return RegisterResult(
        decision=decision_on(state, verdict),
        version=number,
        aliases=aliases,
        alias=aliases[-1] if aliases else "",
        reasons=verdict.reasons,
    )


@stage("promote", title="Move the champion alias", effects=_WRITES_LEDGER)
def promote(request: PromoteRequest, store: ArtifactStore) -> PromoteResult:
    """Promote, roll back or archive a version, and show it in MLflow; a repeat changes nothing.

    Raises:
        ConfigurationError: if there is no such action.
        PromotionError: if the version cannot be acted on so.
        StaleVerdictError: if the version was judged against another champion than the present one.
    """
    if request.action not in _DONE:
        raise ConfigurationError(f"action: expected one of {', '.join(_DONE)}, found {request.action!r}.")
    name, reason = request.model_name, request.reason
    version = request.version or Ledger(store, name).state().staging
    if request.action == "promote":
        state = promotion.promote(store, name, version, reason, request.override)
    else:
        act = promotion.rollback if request.action == "rollback" else promotion.archive
        state = act(store, name, request.version, reason)
    project(store, name, state, "promote:projection")
    champion = state.version(state.champion)
    return PromoteResult(
        decision=_DONE[request.action],
        version=version,
        aliases=state.aliases_of(version),
        champion=champion.model if champion else "",
    )


_DONE = {"promote": "promoted", "rollback": "rolled back", "archive": "archived"}


@stage(
    "champion",
    title="Find the champion",
    effects=_SEES_CHAMPIONS,
    resources=Resources(cpu="500m", memory="1G", minutes=5),
)
def champion(request: ChampionRequest, store: ArtifactStore) -> ChampionResult:
    """Find the champion and what it was trained on.

    Raises:
        NoChampionError: if there is none.
    """
    state = Ledger(store, request.model_name).state()
    version = state.version(state.champion)
    if version is None:
        raise NoChampionError(
            f"{request.model_name} has no champion in {store.address}: expected one that the training pipeline "
            f"registered, found {len(state.versions)} versions. Run the training pipeline, or promote a version."
        )
    inputs = store.manifest(version.model).derived_from
    return ChampionResult(model=version.model, training_set=inputs["training_set"], split=inputs["split"])


def verdict_of(request: RegisterRequest, store: ArtifactStore) -> Verdict:
    """The gate's verdict as the ledger keeps it, read off the evaluation and held against the request.

    Raises:
        WrongEvaluationError: if they do not belong together.
    """
    manifest = store.manifest(request.evaluation)
    inputs = manifest.derived_from
    champion = inputs.get("champion", "")
    policy = identity_of(request.policy)
    if inputs.get("model") != request.model:
        raise WrongEvaluationError(
            f"{request.evaluation} judges {inputs.get('model')}, expected {request.model}. "
            "Evaluate this candidate first."
        )
    if champion == request.model:
        raise WrongEvaluationError(
            f"{request.evaluation} compares {request.model} with itself, which it always passes: expected the "
            "champion other than the candidate. Evaluate it against what `resolve` gives."
        )
    if manifest.configuration.get("policy") != policy:
        raise WrongEvaluationError(
            f"{request.evaluation} applied another policy than the one given here: "
            f"{_difference(manifest.configuration, policy)}. Evaluate again under the present policy."
        )
    body = store.read_json(request.evaluation, "verdict.json")
    subject = Subject(
        model=request.model,
        training_set=inputs["training_set"],
        split=inputs["split"],
        policy=policy_digest(request.policy),
    )
    return Verdict(
        subject=subject,
        champion=champion,
        evaluation=request.evaluation,
        verdict=body["verdict"],
        reasons=tuple(_reason(rule) for rule in body["rules"] if not rule["holds"]),
        approval=request.policy.approval,
    )


def _reason(rule: dict[str, Any]) -> str:
    return f"{rule['name']}: expected {rule['expected']}, found {rule['found']}"


def _difference(configuration: dict[str, Any], policy: dict[str, Any]) -> str:
    applied = configuration.get("policy") or {}
    names = sorted(name for name in {*applied, *policy} if applied.get(name) != policy.get(name))
    return f"{', '.join(names)} differ"
