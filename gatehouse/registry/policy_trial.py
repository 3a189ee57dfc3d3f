"""Judges recorded candidates by another policy, from what the evaluations in the store hold; no model is run again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.evaluation.evidence import origins_of
from gatehouse.evaluation.gate import (
    DATA_CHECKS,
    NOT_TRIED,
    Comparison,
    Cost,
    DataCheck,
    Evidence,
    FittedTestRows,
    RowCounts,
    Suite,
    applied_rules,
    kept_without_features,
    skill_rules,
    verdict_of,
)
from gatehouse.evaluation.group_measures import FAIRNESS, fairness_from
from gatehouse.evaluation.spec import NOT_CHECKED, GatePolicy
from gatehouse.metrics.judging import external_profile, profile_of
from gatehouse.metrics.tasks import TASKS
from gatehouse.registry.naming import VersionName
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

NOT_KNOWN = "not known"
_OF_TASK = ("must_beat_baseline", "leakage_alarm", "slices")
_ASKS = (
    *(*_OF_TASK, "bars", "better_than_guessing", "regressions", "fairness", "max_psi", "max_training_age"),
    *("complete_lineage", "require_integration", "require_online", "own_rules"),
)
"""Settings that may ask nothing; null in the first ones is the default of the task."""


@dataclass(frozen=True)
class Retried:
    """The verdict of a policy on an evaluation, with the rules that refuse or warn, and those that it cannot answer.

    The verdict is `not known` if no rule refuses but one was not measured.
    """

    verdict: str
    broken: tuple[str, ...]
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]


def verdict_by(store: ArtifactStore, evaluation: str, policy: GatePolicy) -> Retried:
    """Judge an evaluation by another policy than its own; nothing is known of one that is no longer whole.

    Raises ConfigurationError if the policy does not fit the task of the evaluation.
    """
    try:
        policy, evidence, missing = recorded(store, evaluation, policy)
    except MissingArtifactError as error:
        return Retried(NOT_KNOWN, (), (), (f"anything: {error}",))
    if "regressions" in missing:
        policy = policy.model_copy(update={"regressions": None})
    rules = tuple(rule for rule in applied_rules(policy, evidence) if rule.name not in missing)
    outcome = verdict_of(rules)
    return Retried(
        verdict=NOT_KNOWN if missing and outcome == "pass" else outcome,
        broken=tuple(str(rule) for rule in rules if rule.refuses),
        warnings=(*(str(rule) for rule in rules if rule.warns), *kept_without_features(policy, evidence)),
        not_measured=missing,
    )


def recorded(
    store: ArtifactStore, evaluation: str, requested_policy: GatePolicy
) -> tuple[GatePolicy, Evidence, tuple[str, ...]]:
    """A policy, resolved for the task of an evaluation; what that one recorded; and the rules that it cannot answer.

    Raises ConfigurationError if the policy does not fit the task; MissingArtifactError if a file is gone.
    """
    manifest, verdict = store.manifest(evaluation), store.read_json(evaluation, "verdict.json")
    metrics, slices = (store.read_json(evaluation, f"{name}.json") for name in ("metrics", "slices"))
    task, inputs = TASKS[manifest.details["task"]], manifest.derived_from
    if problems := list(requested_policy.problems(task)):
        raise ConfigurationError(f"The policy does not fit {evaluation}: {'; '.join(problems)}.")
    scores = manifest.details.get("scores")
    profile = external_profile(task, scores == "classes") if scores else profile_of(task)
    policy, then = requested_policy.resolved(profile), GatePolicy.model_validate(verdict["policy"])
    by = policy.champion.metric
    comparisons = {name: _comparison(body) for name, body in verdict["comparisons"].items()}
    comparison = comparisons.get(by) if then.champion.confidence == policy.champion.confidence else None
    guessing = _comparison(verdict["guessing"]) if verdict["guessing"] else None
    if guessing and (guessing.metric != by or then.better_than_guessing != policy.better_than_guessing):
        guessing = None
    judged = [entry for entry in slices if entry["judged"]]
    values = {
        name: {
            entry["name"]: entry["metrics"]["candidate"][name]
            for entry in judged
            if name in entry["metrics"]["candidate"]
        }
        for name in policy.slices or ()
    }
    # A cost that bounded nothing is in the newest measurement beside the model.
    measured = store.measurements(inputs["model"], "evaluate")[:1]
    cost = Cost(**verdict["cost"]) if "cost" in verdict else None
    if cost is None and measured:
        cost = Cost.of(measured[0], f"measurements/{inputs['model']}")
    suite = NOT_TRIED
    if body := verdict.get("integration"):
        suite = Suite(body["verdict"], tuple(body["reasons"]), tuple(body["warnings"]), body["online"])
    checks = []
    for name in DATA_CHECKS:
        check, why = NOT_CHECKED, tuple[str, ...](["was not given"])
        if reference := manifest.derived_from.get(name):
            try:
                details = store.manifest(reference).details
                check, why = details["verdict"], tuple(details["warnings"])
            except MissingArtifactError:
                why = ("is no longer in the store",)
        checks.append(DataCheck(name.replace("_", " "), check, why))
    evidence = Evidence(
        model=store.manifest(inputs["model"]),
        candidate=metrics["candidate"],
        baseline=metrics["baseline"],
        constant=metrics.get("constant", metrics["baseline"]),
        comparison=comparison,
        slices=values,
        slices_requested=requested_policy.slices is not None,
        data_checks=tuple(checks),
        cost=cost,
        guessing=guessing,
        comparisons=comparisons,
        slice_comparisons={
            entry["name"]: _comparison(entry["comparisons"][by]) for entry in judged if by in entry["comparisons"]
        },
        seen=FittedTestRows(**seen | {"unread": tuple(seen["unread"])}) if (seen := verdict["seen"]) else None,
        fairness=fairness_from(store.read_json(evaluation, FAIRNESS)) if manifest.entry(FAIRNESS) else {},
        origins=origins_of(
            store, inputs["model"], inputs["training_set"], inputs.get("split", ""), inputs.get("split_checks", "")
        ),
        integration=suite,
        counted=RowCounts(**verdict["counted"]),
        floor=_comparison(floor) if (floor := verdict.get("floor")) and floor["metric"] == by else None,
    )
    return policy, evidence, tuple(dict.fromkeys(_not_measured(policy, evidence, metrics, len(judged))))


def _comparison(body: Mapping[str, Any]) -> Comparison:
    return Comparison(**{name: value for name, value in body.items() if name in Comparison.__dataclass_fields__})


def _not_measured(policy: GatePolicy, evidence: Evidence, metrics: Any, judged_slices: int) -> Iterator[str]:
    """Names of the rules that the policy asks for and the evaluation cannot answer."""
    candidate, champion = evidence.candidate, "champion" in metrics
    yield from (f"bar {name}" for name in policy.bars if name not in candidate)
    for name in policy.must_beat_baseline or ():
        if name not in candidate or name not in evidence.baseline:
            yield f"baseline {name}"
    if policy.better_than_guessing is not None and evidence.guessing is None:
        yield "guessing"
    yield from (f"leakage alarm {name}" for name in policy.leakage_alarm or () if name not in candidate)
    if evidence.comparison is None and champion:
        yield f"champion {policy.champion.metric}"
    regressions = policy.regressions
    if regressions is not None and champion:
        lacking = regressions.slices and len(evidence.slice_comparisons) < judged_slices
        if lacking or not set(regressions.metrics) <= evidence.comparisons.keys():
            yield "regressions"
    yield from (f"slices {name}" for name, values in evidence.slices.items() if not values and judged_slices)
    for column, bounds in policy.fairness.items():
        if column not in evidence.fairness:
            yield from (f"fairness {column} {name}" for name in bounds)
    if evidence.integration is NOT_TRIED and policy.require_integration:
        yield "integration"
    if not evidence.integration.online and policy.require_online:
        yield "integration online"
    if evidence.cost is None and policy.cost.latency_ms is not None:
        yield "latency"
    if policy.cost.memory_mb is not None and (evidence.cost is None or evidence.cost.memory_mb is None):
        yield "memory"


class PolicyTrial(StageModel):
    """The recorded verdict on a candidate, and a policy's verdict on the same evaluation.

    `version` is 0 if the candidate was never registered. `now` is `pass`, `refused`, `inconclusive`, or `not known` if
    no rule refuses but one was not measured then. `broken` and `warnings` are the policy's broken rules that refuse and
    warn, `not_measured` those whose values are not in the evaluation.
    """

    version: int
    model: str
    evaluation: str
    then: str
    now: str
    broken: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    not_measured: tuple[str, ...] = ()


def tried(store: ArtifactStore, policy: GatePolicy, candidates: VersionName) -> tuple[PolicyTrial, ...]:
    """What a policy would have decided about each judged candidate of a name, or of one version, in the ledger's order.

    Each evaluation is listed once, with its last verdict in the ledger. Raises ConfigurationError if the policy does
    not fit the task of an evaluation.
    """
    state = candidates.ledger.state()
    trials = []
    for evaluation, verdict in {verdict.evaluation: verdict for _, verdict in state.verdicts}.items():
        version = state.version_of(verdict.subject.model)
        number = version.version if version else 0
        if candidates.number not in (0, number):
            continue
        again = verdict_by(store, evaluation, policy)
        trials.append(
            PolicyTrial(
                version=number,
                model=verdict.subject.model,
                evaluation=evaluation,
                then=verdict.summary,
                now=again.verdict,
                broken=again.broken,
                warnings=again.warnings,
                not_measured=again.not_measured,
            )
        )
    return tuple(trials)


class RuleReach(StageModel):
    """A rule as a policy applies it to a candidate, and whether it refuses a model that uses no feature.

    `without_features` is `refused` or `passes`; empty for a rule that does not ask whether a model predicts.
    """

    rule: str
    expected: str
    severity: str
    owner: str = ""
    without_features: str = ""


class EffectivePolicy(StageModel):
    """A policy with the defaults of the task, and what its rules can still refuse on the rows of an evaluation.

    `off` has the settings that ask nothing. Without an evaluation there are no rules, and nulls stand for the defaults
    of the task.
    """

    evaluation: str
    settings: dict[str, Any]
    off: tuple[str, ...]
    rules: tuple[RuleReach, ...] = ()
    warnings: tuple[str, ...] = ()


def effective_policy(store: ArtifactStore, policy: GatePolicy, candidates: VersionName | None) -> EffectivePolicy:
    """A policy as it applies to the last judged candidate of a name, or to one version; None if none was judged.

    Raises ConfigurationError if the policy does not fit its task.
    """
    state = candidates.ledger.state() if candidates else None
    version = state.version(candidates.number) if state and candidates else None
    last = (version and state and state.last_verdict(version.model)) or (state.verdicts[-1] if state else None)
    evaluation, rules, warnings = "", [], []
    if last:
        evaluation = last[1].evaluation
        policy, evidence, _ = recorded(store, evaluation, policy)
        outcomes = {rule.name: "passes" if not rule.refuses else "refused" for rule in skill_rules(policy, evidence)}
        warnings = [*kept_without_features(policy, evidence)]
        rules = [
            RuleReach(
                rule=rule.name,
                expected=rule.expected,
                severity=rule.severity,
                owner=rule.owner,
                without_features=outcomes.get(rule.name, ""),
            )
            for rule in applied_rules(policy, evidence)
        ]
    settings = policy.model_dump(mode="json")
    off = tuple(name for name in _ASKS if not settings[name] and not (name in _OF_TASK and settings[name] is None))
    return EffectivePolicy(
        evaluation=evaluation, settings=settings, off=off, rules=tuple(rules), warnings=tuple(warnings)
    )
