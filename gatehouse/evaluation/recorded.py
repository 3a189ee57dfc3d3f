"""What a policy says of an earlier evaluation, from what that evaluation holds: no model is run again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError, MissingArtifactError
from gatehouse.evaluation.gate import (
    ENOUGH,
    NOT_TRIED,
    UNSEEN,
    Comparison,
    Cost,
    Counted,
    DataCheck,
    Evidence,
    Seen,
    Suite,
    judge,
    verdict_of,
)
from gatehouse.evaluation.group_measures import FAIRNESS, fairness_from
from gatehouse.evaluation.integration.spec import NOT_CHECKED
from gatehouse.evaluation.origins import origins_of
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.metrics.tasks.task import Task
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

NOT_KNOWN = "not known"
_DATA = ("training_set", "split")
_CHECKS = ("validation", "leakage", "split_checks")


@dataclass(frozen=True)
class Rejudged:
    """What a policy says of an evaluation.

    Attributes:
        verdict: `pass`, `refused`, `inconclusive`, or `not known` where a rule was not measured then and none refuses.
        broken: Rules that do not hold and refuse, in words.
        warnings: Rules that do not hold and warn.
        not_measured: Names of rules that need what the evaluation does not hold.
    """

    verdict: str
    broken: tuple[str, ...]
    warnings: tuple[str, ...]
    not_measured: tuple[str, ...]


def rejudged(store: ArtifactStore, evaluation: str, asked: GatePolicy) -> Rejudged:
    """Hold an evaluation against another policy than its own.

    Args:
        store: Where the evaluation is.
        evaluation: Its reference.
        asked: The policy as it is written.

    Raises:
        ConfigurationError: if the policy does not fit the task of the evaluation.
    """
    manifest, verdict = store.manifest(evaluation), store.read_json(evaluation, "verdict.json")
    metrics, slices = (store.read_json(evaluation, f"{name}.json") for name in ("metrics", "slices"))
    task = TASKS[manifest.details["task"]]
    if problems := list(asked.problems(task)):
        raise ConfigurationError(f"The policy does not fit {evaluation}: {'; '.join(problems)}.")
    policy = asked.resolved(judging_of(task))
    judged = [entry["metrics"]["candidate"] | {"": entry["name"]} for entry in slices if entry["judged"]]
    data, split_checks = (
        {name: manifest.derived_from[name] for name in _DATA},
        manifest.derived_from.get(_CHECKS[2], ""),
    )
    evidence = Evidence(
        model=store.manifest(manifest.derived_from["model"]),
        candidate=metrics["candidate"],
        baseline=metrics["baseline"],
        comparison=_comparison(verdict, policy),
        slices={name: {each[""]: each[name] for each in judged if name in each} for name in policy.slices or ()},
        slices_asked=asked.slices is not None,
        data_checks=tuple(_data_checks(store, manifest)),
        cost=Cost(**verdict["cost"]) if "cost" in verdict else _measured(store, manifest.derived_from["model"]),
        guessing=_guessing(verdict, policy),
        comparisons=_comparisons(verdict.get("comparisons", {})),
        origins=origins_of(store, manifest.derived_from["model"], **data, split_checks=split_checks),
        seen=_seen(verdict.get("seen")),
        fairness=fairness_from(store.read_json(evaluation, FAIRNESS)) if manifest.entry(FAIRNESS) else {},
        integration=_suite(verdict.get("integration")),
        counted=_counted(store, evaluation, task),
        slice_comparisons={
            entry["name"]: found[policy.champion.metric]
            for entry in slices
            if entry["judged"] and policy.champion.metric in (found := _comparisons(entry.get("comparisons", {})))
        },
    )
    missing = tuple(dict.fromkeys(_not_measured(policy, evidence, metrics, slices)))
    if "regressions" in missing:
        policy = policy.model_copy(update={"regressions": None})
    rules = tuple(rule for rule in judge(policy, evidence) if rule.name not in missing)
    said = verdict_of(rules)
    return Rejudged(
        verdict=NOT_KNOWN if missing and said == "pass" else said,
        broken=tuple(str(rule) for rule in rules if rule.refuses),
        warnings=tuple(str(rule) for rule in rules if rule.warns),
        not_measured=missing,
    )


def _comparison(verdict: Mapping[str, Any], policy: GatePolicy) -> Comparison | None:
    """With the champion of then in the policy's metric; None where there was none, or no bound of this confidence."""
    first = verdict["comparison"]
    every = verdict.get("comparisons") or ({first["metric"]: first} if first else {})
    found = every.get(policy.champion.metric)
    then = GatePolicy.model_validate(verdict["policy"]).champion.confidence
    if found is None or then != policy.champion.confidence:
        return None
    return _read(found)


def _guessing(verdict: Mapping[str, Any], policy: GatePolicy) -> Comparison | None:
    """With predictions of other rows; None where that was not measured in the policy's metric at its confidence."""
    found, then = verdict.get("guessing"), GatePolicy.model_validate(verdict["policy"]).better_than_guessing
    if not found or found["metric"] != policy.champion.metric or then != policy.better_than_guessing:
        return None
    return _read(found)


def _comparisons(written: Mapping[str, Any]) -> dict[str, Comparison]:
    """By metric, those whose standard error was measured."""
    return {name: _read(each) for name, each in written.items() if "standard_error" in each}


def _read(written: Mapping[str, Any]) -> Comparison:
    return Comparison(**{name: value for name, value in written.items() if name in Comparison.__dataclass_fields__})


def _seen(written: Mapping[str, Any] | None) -> Seen | None:
    return Seen(**{**written, "unread": tuple(written["unread"])}) if written else None


def _counted(store: ArtifactStore, evaluation: str, task: Task) -> Counted | None:
    """How much was measured, from what every evaluation holds; None for a ranking whose groups were not drawn."""
    rows = store.manifest(evaluation).details["rows"]
    if task.counted == "group":
        drawn = store.read_json(evaluation, "uncertainty.json")
        return Counted(drawn["units"], groups=True) if drawn["unit"] == "group" else None
    if not task.has_classes:
        return Counted(rows)
    classes: dict[int, int] = {}
    for label, _, count in store.read_json(evaluation, "curves.json")["candidate"]["confusion"]:
        classes[label] = classes.get(label, 0) + count
    return Counted(rows, rarer=rows - max(count for label, count in classes.items() if label >= 0))


def _suite(written: Mapping[str, Any] | None) -> Suite:
    if not written:
        return NOT_TRIED
    return Suite(written["verdict"], tuple(written["reasons"]), tuple(written["warnings"]), written.get("online", ""))


def _measured(store: ArtifactStore, model: str) -> Cost | None:
    """What the newest evaluation of a model measured beside it, which bounded nothing; None where that is gone."""
    for told in store.measurements(model, "evaluate")[:1]:
        return Cost.of(told, f"measurements/{model}")
    return None


def _data_checks(store: ArtifactStore, manifest: Manifest) -> Iterator[DataCheck]:
    for name in _CHECKS:
        title = name.replace("_", " ")
        if not (reference := manifest.derived_from.get(name)):
            yield DataCheck(title, NOT_CHECKED, ("was not given",))
            continue
        try:
            details = store.manifest(reference).details
        except MissingArtifactError:
            yield DataCheck(title, NOT_CHECKED, ("is no longer in the store",))
        else:
            yield DataCheck(title, details["verdict"], tuple(details["warnings"]))


def _not_measured(policy: GatePolicy, evidence: Evidence, metrics: Any, slices: Any) -> Iterator[str]:
    """Names of the rules that the policy asks for and the evaluation cannot answer."""
    for name in policy.bars:
        if name not in evidence.candidate:
            yield f"bar {name}"
    for name in policy.must_beat_baseline or ():
        if name not in evidence.candidate or name not in evidence.baseline:
            yield f"baseline {name}"
    if policy.better_than_guessing is not None and evidence.guessing is None:
        yield "guessing"
    for name in policy.leakage_alarm or ():
        if name not in evidence.candidate:
            yield f"leakage alarm {name}"
    if evidence.seen is None and "champion" in metrics:
        yield UNSEEN
    if evidence.counted is None:
        yield ENOUGH
    if evidence.comparison is None and "champion" in metrics:
        yield f"champion {policy.champion.metric}"
    wanted = policy.regressions
    if wanted is not None and "champion" in metrics:
        lacking = wanted.slices and len(evidence.slice_comparisons) < sum(entry["judged"] for entry in slices)
        if lacking or not set(wanted.metrics) <= evidence.comparisons.keys():
            yield "regressions"
    for name, values in evidence.slices.items():
        if not values and any(entry["judged"] for entry in slices):
            yield f"slices {name}"
    for column, bounds in policy.fairness.items():
        if column not in evidence.fairness:
            yield from (f"fairness {column} {name}" for name in bounds)
    if evidence.integration is NOT_TRIED:
        yield from ["integration"] * policy.require_integration
    if not evidence.integration.online:
        yield from ["integration online"] * policy.require_online
    if evidence.cost is None and policy.cost.latency_ms is not None:
        yield "latency"
    if policy.cost.memory_mb is not None and (evidence.cost is None or evidence.cost.memory_mb is None):
        yield "memory"
