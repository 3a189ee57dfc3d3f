"""The stages of the registry: find the champion, register a candidate behind the gate, and move its aliases."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.evaluation.spec import NOT_CHECKED, GatePolicy
from gatehouse.registry import promotion
from gatehouse.registry.approval import approval_command, now, rules_of
from gatehouse.registry.explanation import require_answers
from gatehouse.registry.external import bound_evaluation, publish_files, record_statements
from gatehouse.registry.ledger import CHAMPION, SEES_CHAMPIONS, WRITES_LEDGER, Ledger, VerdictSubject
from gatehouse.registry.naming import NAME, named
from gatehouse.registry.projection import project
from gatehouse.registry.registration import decision_on, differing, next_registration, verdict_on
from gatehouse.runtime.redaction import redacted, without_secrets
from gatehouse.store.identity import identity_digest, operational
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.provenance import lineage_of

_DONE = {"promote": "promoted", "rollback": "rolled back", "archive": "archived"}


class ResolveRequest(StageModel):
    """The model whose champion is wanted; with `required` a model without champion is an error.

    With a candidate it is the champion that this candidate must be compared with, which is never the candidate itself.
    With the policy of the gate too, a candidate whose verdict by that policy on the same data led to all that follows
    from it gets the champion of that verdict, so that judging it again changes nothing.
    """

    model_name: str = Field(pattern=NAME)
    candidate: str = ""
    policy: GatePolicy | None = None
    required: bool = False


class ResolveResult(StageModel):
    """The champion, its version number, its training data, and its evaluation at the gate.

    `floor` is the best champion so far, if that is another one. Texts are empty and the version is 0 where there is
    none. `registered` is when it was registered, in UTC; empty if the ledger does not say.
    """

    champion: str
    floor: str = ""
    version: int = 0
    training_set: str = ""
    split: str = ""
    evaluation: str = ""
    registered: str = ""


class NoChampionError(GatehouseError):
    """A model has no champion yet."""


@stage("resolve", title="Find the champion", effects=SEES_CHAMPIONS)
def resolve(request: ResolveRequest, store: ArtifactStore) -> ResolveResult:
    """Find the champion and its training data.

    Raises NoChampionError if it is required, and there is none.
    """
    ledger = Ledger(store, request.model_name)
    state = ledger.state()
    if request.candidate and request.policy:
        inputs = store.manifest(request.candidate).derived_from
        subject = VerdictSubject(
            model=request.candidate,
            training_set=inputs.get("training_set", ""),
            split=inputs.get("split", ""),
            policy=identity_digest(request.policy),
        )
        version, floor = state.version_of(state.expected_champion(subject)), state.expected_floor(subject)
    else:
        version = state.version_of(state.champion_other_than(request.candidate))
        floor = state.floor_other_than(request.candidate)
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
        floor=floor,
        version=version.version,
        training_set=inputs.get("training_set", ""),
        split=inputs.get("split", ""),
        evaluation=version.evaluation,
        registered=str(ledger.records()[version.registered_at - 1].provenance.get("at", "")),
    )


class RegisterRequest(StageModel):
    """A model, the evaluation that judged it, and what a person says of it, without secrets.

    `model` is a reference, or empty for a model that something else trained; then `path` is its file or folder.
    `evaluation` is a reference, or empty; then `judged` is the folder of the evaluation of scores. `statements`, of
    such a model alone, has texts named data, code, environment, parents, reason and pickle_reason, and `settings` are
    those of its training. `by` is who submits it; empty for the user of the process.
    """

    model_name: str = Field(pattern=NAME)
    model: str = ""
    path: str = ""
    evaluation: str = ""
    judged: str = ""
    statements: dict[str, Annotated[str, AfterValidator(redacted)]] = Field(default_factory=dict)
    settings: Annotated[dict[str, Any], AfterValidator(without_secrets)] = Field(default_factory=dict)
    by: str = operational("")

    @model_validator(mode="after")
    def _one_model(self) -> "RegisterRequest":
        for one, other in (("model", "path"), ("evaluation", "judged")):
            if bool(getattr(self, one)) == bool(getattr(self, other)):
                count = "both" if getattr(self, one) else "neither"
                raise ValueError(f"expected {one} or {other}, found {count}")
        if self.model and (self.statements or self.settings):
            raise ValueError("statements, settings: expected none of a model in the store, whose lineage is known")
        return self


class RegisterResult(StageModel):
    """The decision about the candidate, with the model and the evaluation that it is about.

    `decision` is `approved`, `awaiting approval`, `awaiting promotion`, `rejected`, `refused`, `inconclusive`,
    `replaced`, `rolled back` or `archived`; `verdict`, for reports, is `pass` for `approved`, else the decision.
    `version` is 0 if there is none; `aliases` are those that the version holds now; `alias` is the highest of them, or
    empty. `reasons` say why the gate refused, or which command to run next; `warnings` list the exemptions that were
    applied, broken rules that only warn, another policy than the champion's and what it would say, and files that may
    run code. `earlier_uses` counts the candidates of this name that were judged on the same test set before; `summary`
    says it in words.
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
    model: str = ""
    evaluation: str = ""


@stage("register", title="Register behind the gate", effects=WRITES_LEDGER)
def register(request: RegisterRequest, store: ArtifactStore) -> RegisterResult:
    """Record the gate's verdict in the ledger, by the policy of the evaluation; update MLflow if the ledger changed.

    Registering again without a change writes nothing.

    Raises:
        PickleError: if a file may run code when it is loaded, and `statements` do not say why.
        WrongEvaluationError: if the evaluation judged another model or other files, or compares the model with itself.
        StaleVerdictError: if the champion changed after the candidate was judged.
        IncompleteLineageError: if the code, data, place or author of a model of Gatehouse's training is unknown.
        CorruptArtifactError: if the candidate, or an artifact it was made from, does not verify.
    """
    name, model = request.model_name, request.model
    if request.path:
        model = publish_files(store, name, request.path, request.statements.get("pickle_reason", ""))
    evaluation = bound_evaluation(store, name, model, request.evaluation, request.judged)
    if request.path:
        record_statements(store, model, request.statements, request.settings)
    ledger = Ledger(store, name)
    before = ledger.state()
    verdict = verdict_on(store, model, evaluation, before, now())
    lineage: tuple[str, ...] = ()
    if next_registration(before, verdict, lineage) is not None:
        store.verify(model)
        require_answers(store, model)
        lineage = lineage_of(store, model)
    state = ledger.extend(lambda current: next_registration(current, verdict, lineage), request.by)
    project(store, name, state)
    version = state.version_of(model)
    number = version.version if version else 0
    aliases = state.aliases_of(number)
    decision = decision_on(state, verdict, now())
    recorded = state.verdict_on(verdict.subject)
    uses = state.uses_before(recorded[0], verdict.subject) if recorded else 0
    reasons = verdict.reasons
    way = f"gatehouse models promote {name}:{number}, or the promotion pipeline"
    if verdict.waits_for_outcomes:
        way = f"gatehouse models rollout {name}, or the rollout pipeline: the policy asks for live outcomes"
    if not reasons and decision == "awaiting approval":
        eyes = "; not by who trained or submitted it" if verdict.four_eyes else ""
        days = f"{verdict.approval_days} day{'s' if verdict.approval_days > 1 else ''}"
        reasons = (
            f"{approval_command(f'{name}:{number}', verdict)} (or reject): holds for {days}{eyes}",
            f"then {way}",
        )
    elif not reasons and decision == "awaiting promotion":
        reasons = (way,)
    warnings = [*map(str, verdict.exempted), *(str(rule) for rule in rules_of(store, evaluation) if rule.warns)]
    if (asked := store.manifest(evaluation).configuration["policy"]).get("alignment"):
        from gatehouse.registry.alignment import alignment_rules

        rules = alignment_rules(store, before, GatePolicy.model_validate(asked))
        warnings += [str(rule) for rule in rules if rule.warns or rule.observed.startswith(NOT_CHECKED)]
    if champion := before.last_verdict(verdict.champion):
        evaluations = (champion[1].evaluation, evaluation)
        earlier, policy = (dict(store.manifest(name).configuration["policy"]) for name in evaluations)
        if names := differing(earlier, policy):
            warnings.append(f"the policy is another than that by which the champion was judged: {names} differ")
            from gatehouse.registry.policy_trial import verdict_by  # NumPy: an unchanged run imports none.

            again = verdict_by(store, evaluation, GatePolicy.model_validate(earlier))
            if again.verdict != verdict.verdict and verdict.admits:
                why = "; ".join((*again.broken, *(f"{rule}: not measured" for rule in again.not_measured)))
                warnings.append(f"by the policy of the champion, the candidate is {again.verdict}: {why}")
    floor = before.floor_other_than(model)
    if floor and verdict.floor != floor and not verdict.subject.split:
        warnings.append(f"not compared with {floor}, the best champion so far: scores of the champion alone were given")
    pickles = store.manifest(model).details.get("pickles", ())
    return RegisterResult(
        decision=decision,
        verdict="pass" if decision == "approved" else decision,
        version=number,
        aliases=aliases,
        alias=aliases[-1] if aliases else "",
        reasons=reasons,
        warnings=(*warnings, *(f"{file} may run code when it is loaded" for file in pickles)),
        earlier_uses=uses,
        summary=f"{uses:,} other candidates of {name} were judged on this test set before",
        model=model,
        evaluation=evaluation,
    )


class PromoteRequest(StageModel):
    """An action on one version: `promote`, `rollback` or `archive`.

    For `promote`, version 0 is the one in staging, `to` is its new alias, and `share` the share of the requests that a
    canary answers; None for the present one, or 5 %. `by` is the person; empty for the user of the process.
    """

    model_name: str
    action: str = "promote"
    version: int = 0
    reason: str = ""
    override: bool = False
    to: str = CHAMPION
    share: float | None = None
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

    Raises ConfigurationError if there is no such action or model; GatehouseError as `promotion.promote`, `rollback` and
    `archive` raise.
    """
    if request.action not in _DONE:
        raise ConfigurationError(f"action: expected one of {', '.join(_DONE)}, found {request.action!r}.")
    name, reason = request.model_name, request.reason
    before = named(store, name).ledger.state()
    version = request.version or before.staging
    unchanged = False
    if request.action == "promote":
        state = promotion.promote(store, name, version, reason, request.override, request.to, request.by, request.share)
        unchanged = before.holder(request.to) == version and before.canary_share == state.canary_share
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
