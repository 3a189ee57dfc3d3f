"""The stages of the registry: find the champion, register a candidate behind the gate, and move its aliases."""

from pydantic import Field

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry import promotion
from gatehouse.registry.answers import require_answers
from gatehouse.registry.approval import now
from gatehouse.registry.ledger import SEES_CHAMPIONS, WRITES_LEDGER, Ledger
from gatehouse.registry.naming import NAME
from gatehouse.registry.projection import project
from gatehouse.registry.registration import decision_on, next_registration, verdict_on
from gatehouse.registry.state import CHAMPION, Subject
from gatehouse.store.identity import identity_digest, operational
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

_DONE = {"promote": "promoted", "rollback": "rolled back", "archive": "archived"}


class ResolveRequest(StageModel):
    """The model whose champion is wanted.

    With a candidate it is the champion that this candidate must be compared with, on the test set, by the policy. With
    `required` a model without champion is an error.
    """

    model_name: str = Field(pattern=NAME)
    candidate: str = ""
    training_set: str = ""
    split: str = ""
    policy: GatePolicy = GatePolicy()
    required: bool = False


class ResolveResult(StageModel):
    """The champion, its version number, its training data, and its evaluation at the gate.

    Texts are empty and the version is 0 where there is none. `registered` is when it was registered, in UTC; empty if
    the ledger does not say.
    """

    champion: str
    version: int = 0
    training_set: str = ""
    split: str = ""
    evaluation: str = ""
    registered: str = ""


class NoChampionError(GatehouseError):
    """A model has no champion yet."""


@stage("resolve", title="Find the champion", effects=SEES_CHAMPIONS)
def resolve(request: ResolveRequest, store: ArtifactStore) -> ResolveResult:
    """Find the champion and its training data; it is never the candidate itself.

    Raises NoChampionError if it is required, and there is none.
    """
    ledger = Ledger(store, request.model_name)
    state = ledger.state()
    if request.candidate:
        subject = Subject(
            model=request.candidate,
            training_set=request.training_set,
            split=request.split,
            policy=identity_digest(request.policy),
        )
        version = state.version_of(state.expected_champion(subject))
    else:
        version = state.version(state.champion)
    if version is None:
        if request.required:
            raise NoChampionError(
                f"{request.model_name} has no champion in {store.address}, of {len(state.versions)} versions. Run the "
                "training pipeline, or promote a version."
            )
        return ResolveResult(champion="")
    inputs = store.manifest(version.model).derived_from
    return ResolveResult(
        champion=version.model,
        version=version.version,
        training_set=inputs.get("training_set", ""),
        split=inputs.get("split", ""),
        evaluation=version.evaluation,
        registered=str(ledger.records()[version.registered_at - 1].provenance.get("at", "")),
    )


class RegisterRequest(StageModel):
    """A candidate and the evaluation that judged it. `by` is who submits it; empty for the user of the process."""

    model_name: str
    model: str
    evaluation: str
    policy: GatePolicy
    by: str = operational("")


class RegisterResult(StageModel):
    """The decision about the candidate.

    `decision` is `approved`, `awaiting approval`, `awaiting promotion`, `rejected`, `refused`, `inconclusive`, `rolled
    back` or `archived`; `verdict`, for reports, is `pass` for `approved`, else the decision. `version` is 0 if there is
    none; `aliases` are those that the version holds now; `alias` is the highest of them, or empty. `reasons` say why
    the gate refused, or which command to run next; `warnings` list the exemptions that were applied. `earlier_uses`
    counts the candidates of this name that were judged on the same test set before; `summary` says it in words.
    """

    decision: str
    verdict: str
    version: int
    aliases: tuple[str, ...]
    alias: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    earlier_uses: int = 0
    summary: str = ""


@stage("register", title="Register behind the gate", effects=WRITES_LEDGER)
def register(request: RegisterRequest, store: ArtifactStore) -> RegisterResult:
    """Record the gate's verdict in the ledger, and update MLflow if the ledger changed.

    Registering again without a change writes nothing.

    Raises:
        WrongEvaluationError: if the evaluation judges another model or policy, or compares the model with itself.
        StaleVerdictError: if the champion changed after the candidate was judged.
        IncompleteLineageError: if the code, data, place or author of the candidate is unknown.
        CorruptArtifactError: if the candidate, or an artifact it was made from, does not verify.
    """
    ledger = Ledger(store, request.model_name)
    before = ledger.state()
    verdict = verdict_on(store, request.model, request.evaluation, request.policy, before, now())
    lineage: tuple[str, ...] = ()
    if next_registration(before, verdict, lineage) is not None:
        store.verify(request.model)
        require_answers(store, request.model)
        lineage = lineage_of(store, request.model)
    state = ledger.extend(lambda current: next_registration(current, verdict, lineage), request.by)
    project(store, request.model_name, state)
    version = state.version_of(verdict.subject.model)
    number = version.version if version else 0
    aliases = state.aliases_of(number)
    decision = decision_on(state, verdict, now())
    recorded = state.verdict_on(verdict.subject)
    uses = state.uses_before(recorded[0], verdict.subject) if recorded else 0
    name, reasons = f"{request.model_name}:{number}", verdict.reasons
    if not reasons and decision == "awaiting approval":
        eyes = "; not by who trained or submitted it" if verdict.four_eyes else ""
        days = f"{verdict.approval_days} day{'s' if verdict.approval_days > 1 else ''}"
        reasons = (
            f'gatehouse models approve {name} --reason "…" (or reject): holds for {days}{eyes}',
            f"then gatehouse models promote {name}, or the promotion pipeline",
        )
    elif not reasons and decision == "awaiting promotion":
        reasons = (f"gatehouse models promote {name}, or the promotion pipeline",)
    return RegisterResult(
        decision=decision,
        verdict="pass" if decision == "approved" else decision,
        version=number,
        aliases=aliases,
        alias=aliases[-1] if aliases else "",
        reasons=reasons,
        warnings=tuple(map(str, verdict.exempted)),
        earlier_uses=uses,
        summary=f"{uses:,} other candidates of {request.model_name} were judged on this test set before",
    )


class PromoteRequest(StageModel):
    """An action on one version: `promote`, `rollback` or `archive`.

    For `promote`, version 0 is the one in staging, and `to` is its new alias. `by` is the person; empty for the user of
    the process.
    """

    model_name: str
    action: str = "promote"
    version: int = 0
    reason: str = ""
    override: bool = False
    to: str = CHAMPION
    by: str = operational("")


class PromoteResult(StageModel):
    """The version, its decision, its aliases afterwards, and the champion afterwards.

    `decision` is `promoted`, `rolled back`, `archived`, or for example `champion already` for a promotion that changed
    nothing. `champion` is an identity, empty for none.
    """

    decision: str
    version: int
    aliases: tuple[str, ...]
    champion: str


@stage("promote", title="Move the champion alias", effects=WRITES_LEDGER)
def promote(request: PromoteRequest, store: ArtifactStore) -> PromoteResult:
    """Promote, roll back or archive a version, and update MLflow; a repeat changes nothing.

    Raises ConfigurationError if there is no such action; GatehouseError as `promotion.promote`, `rollback` and
    `archive` raise.
    """
    if request.action not in _DONE:
        raise ConfigurationError(f"action: expected one of {', '.join(_DONE)}, found {request.action!r}.")
    name, reason = request.model_name, request.reason
    before = Ledger(store, name).state()
    version = request.version or before.staging
    unchanged = False
    if request.action == "promote":
        state = promotion.promote(store, name, version, reason, request.override, request.to, request.by)
        unchanged = before.holder(request.to) == version
    elif request.action == "rollback":
        state = promotion.rollback(store, name, request.version, reason, request.by)
    else:
        state = promotion.archive(store, name, request.version, reason, request.by)
    project(store, name, state, "promote:projection")
    holder = state.version(state.champion)
    return PromoteResult(
        decision=f"{request.to} already" if unchanged else _DONE[request.action],
        version=version,
        aliases=state.aliases_of(version),
        champion=holder.model if holder else "",
    )
