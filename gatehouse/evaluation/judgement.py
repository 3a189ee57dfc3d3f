"""Measures models side by side on the test rows, and judges the candidate."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import DrawnMetrics, Units, compared, interval, on_draws, on_shuffled
from gatehouse.evaluation.fairness import fairness_of
from gatehouse.evaluation.gate import (
    NONE_REFUSES,
    NOT_TRIED,
    Cost,
    DataCheck,
    Evidence,
    FittedTestRows,
    Origins,
    Outcome,
    Rule,
    Suite,
    TestSize,
    judge,
    verdict_of,
)
from gatehouse.evaluation.group_measures import Fairness
from gatehouse.evaluation.slices import Slice, measured_slices
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.metrics.catalogue import measure, metric_named, metrics_for
from gatehouse.metrics.judging import TaskProfile, profile_of
from gatehouse.metrics.metric import Array, Predictions, all_on_draws, by_metric
from gatehouse.metrics.tasks import Task
from gatehouse.store.manifest import Manifest

CANDIDATE, CHAMPION, BASELINE, CONSTANT = "candidate", "champion", "baseline", "constant"


@dataclass(frozen=True)
class Uncertainty:
    """Intervals of all metrics, by role and metric, and how they were drawn."""

    unit: str
    units: int
    samples: int
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class Judgement:
    """The result of an evaluation."""

    metrics: Mapping[str, Mapping[str, float]]
    uncertainty: Uncertainty
    slices: tuple[Slice, ...]
    fairness: tuple[Fairness, ...]
    evidence: Evidence
    rules: tuple[Rule, ...]
    unused: tuple[str, ...]
    unbounded: tuple[str, ...]

    @property
    def verdict(self) -> Outcome:
        """`pass`, `refused` or `inconclusive`."""
        return verdict_of(self.rules)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Broken rules that only warn, removed test rows, and gaps of the policy."""
        broken = [str(rule) for rule in self.rules if rule.warns]
        seen = self.evidence.seen
        removed = [f"seen rows: {seen}"] if seen and seen.left < seen.of else []
        blunt = [] if any(rule.severity == "refuse" for rule in self.rules) else [f"rules: {NONE_REFUSES}"]
        free = [f"fairness {name}: the column is protected, and no rule of the policy looks" for name in self.unbounded]
        return (
            *broken,
            *blunt,
            *removed,
            *free,
            *(f"integration: {warning}" for warning in self.evidence.integration.warnings),
            *(f"rules.{name}: the policy names a rule that was not applied" for name in self.unused),
        )


def judged(
    task: Task,
    spec: EvaluationSpec,
    requested_policy: GatePolicy,
    model: Manifest,
    part: Part,
    predictions: Mapping[str, Predictions],
    units: Units,
    data_checks: tuple[DataCheck, ...] = (),
    cost: Cost | None = None,
    seen: FittedTestRows | None = None,
    origins: Origins | None = None,
    integration: Suite = NOT_TRIED,
    profile: TaskProfile | None = None,
) -> Judgement:
    """Measure predictions for the test rows, by role, and judge the candidate by the policy as it is written.

    `profile` gives what the policy leaves open; None for the task's own.
    """
    profile = profile or profile_of(task)
    labels, policy = part.labels, requested_policy.resolved(profile)
    by, confidence = policy.champion.metric, policy.champion.confidence
    assert by is not None, "the policy is resolved"
    metrics = {role: measure(task.name, labels, read) for role, read in predictions.items()}
    uncertainty, drawn = uncertainty_of(task, labels, predictions, units, spec)
    comparisons = {}
    if CHAMPION in metrics:
        comparisons = {
            name: compared(
                metric_named(name),
                metrics[CANDIDATE][name],
                metrics[CHAMPION][name],
                (drawn[CANDIDATE][name], drawn[CHAMPION][name]),
                confidence,
                units.number,
            )
            for name in metrics[CANDIDATE]
        }
    guessing = None
    if policy.better_than_guessing is not None:
        # The candidate against its own predictions of other rows, in the metric that models are compared in.
        metric, samples = metric_named(by), spec.bootstrap_samples
        guessed, shuffled = on_shuffled(metric, labels, predictions[CANDIDATE], units, samples, spec.seed)
        draws = drawn[CANDIDATE][by], shuffled
        own = metrics[CANDIDATE][by]
        guessing = compared(metric, own, guessed, draws, policy.better_than_guessing, units.number)
    shown = {role: read for role, read in predictions.items() if role in (CANDIDATE, CHAMPION)}
    limits = tuple(sorted(policy.slices or ()))
    slices = measured_slices(part.table, labels, shown, spec, task, limits, (by, confidence), units, profile.objective)
    judged_slices = [entry for entry in slices if entry.judged]
    fairness = tuple(fairness_of(part.table, labels, shown, spec, task, units))
    if part.groups is not None:
        counted = TestSize(len(np.unique(part.groups)), groups=True)
    else:
        rows, first = np.unique(part.rows, return_index=True)  # A row with a weight stands there several times.
        classes = np.unique(labels[first], return_counts=True)[1] if task.has_classes else None
        counted = TestSize(len(rows), rarer=None if classes is None else int(classes.sum() - classes.max()))
    evidence = Evidence(
        model=model,
        candidate=metrics[CANDIDATE],
        baseline=metrics[BASELINE],
        comparison=comparisons.get(by),
        slices={name: {entry.name: entry.metrics[CANDIDATE][name] for entry in judged_slices} for name in limits},
        slices_requested=requested_policy.slices is not None,
        data_checks=data_checks,
        cost=cost,
        guessing=guessing,
        comparisons=comparisons,
        slice_comparisons={entry.name: entry.comparisons[by] for entry in judged_slices if by in entry.comparisons},
        seen=seen,
        fairness={measured.column: measured for measured in fairness},
        origins=origins,
        integration=integration,
        counted=counted,
    )
    rules = judge(policy, evidence)
    return Judgement(
        metrics=metrics,
        uncertainty=uncertainty,
        slices=tuple(slices),
        fairness=fairness,
        evidence=evidence,
        rules=rules,
        unused=policy.unused(rules),
        unbounded=tuple(measured.column for measured in fairness if not policy.fairness.get(measured.column)),
    )


def uncertainty_of(
    task: Task, labels: Array, predictions: Mapping[str, Predictions], units: Units, spec: EvaluationSpec
) -> tuple[Uncertainty, dict[str, dict[str, Array]]]:
    """The intervals of all metrics of a task, and the values on each draw, by role and metric; the candidate is first.

    Roles are measured one after another on the same draws, so only one is prepared at a time.
    """
    metrics = metrics_for(task.name)
    drawn: dict[str, dict[str, Array]] = {}
    intervals = {}
    for role, read in predictions.items():
        measured = DrawnMetrics(all_on_draws([*metrics.values()], labels, read))
        columns = by_metric([*metrics.values()], on_draws([measured], units, spec.bootstrap_samples, spec.seed))
        by_name = dict(zip(metrics, columns, strict=True))
        drawn[role] = {name: values[:, 0] for name, values in by_name.items()}
        intervals[role] = {
            name: interval(metrics[name], values, units.number, labels, read) for name, values in by_name.items()
        }
    return Uncertainty(units.name, units.number, spec.bootstrap_samples, intervals), drawn
