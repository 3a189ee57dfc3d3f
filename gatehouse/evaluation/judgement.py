"""Measures models beside each other on the test rows, and judges the candidate."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.comparison import compared
from gatehouse.evaluation.fairness import fairness_of
from gatehouse.evaluation.gate import (
    NONE_REFUSES,
    NOT_TRIED,
    Comparison,
    Cost,
    Counted,
    DataCheck,
    Evidence,
    Origins,
    Outcome,
    Rule,
    Seen,
    Suite,
    judge,
    verdict_of,
)
from gatehouse.evaluation.group_measures import Fairness
from gatehouse.evaluation.shuffled import on_shuffled
from gatehouse.evaluation.slices import Slice, Slicing
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.uncertainty import Uncertainty, uncertainty_of
from gatehouse.metrics.catalogue.found import measure, metric_named
from gatehouse.metrics.catalogue.metric import Array, Predictions
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.metrics.tasks.task import Task
from gatehouse.store.manifest import Manifest

CANDIDATE, CHAMPION, BASELINE, TREES, CONSTANT = "candidate", "champion", "baseline", "boosted trees", "constant"


@dataclass(frozen=True)
class Judgement:
    """What was found.

    Attributes:
        metrics: By role, by name.
        uncertainty: Their intervals.
        guessing: The candidate against its own predictions of other rows; None where the policy does not ask.
        comparisons: The candidate against the champion in every metric; empty where there is none.
        judged_by: The metric of these that the policy judges by.
        slices: The slices that the project names.
        found: The worst of the others.
        rules: The rules as they were applied.
        unused: Names in the policy's `rules` that stand for none of these.
        seen: Test rows that were taken out, as a model was fitted on them.
        fairness: What was measured by each protected column.
        unbounded: Columns of these that the policy bounds nothing of.
        integration: What came of the candidate's integration suite.
    """

    metrics: Mapping[str, Mapping[str, float]]
    uncertainty: Uncertainty
    guessing: Comparison | None
    comparisons: Mapping[str, Comparison]
    judged_by: str
    slices: tuple[Slice, ...]
    found: tuple[Slice, ...]
    rules: tuple[Rule, ...]
    unused: tuple[str, ...] = ()
    seen: Seen | None = None
    fairness: tuple[Fairness, ...] = ()
    unbounded: tuple[str, ...] = ()
    integration: Suite = NOT_TRIED

    @property
    def verdict(self) -> Outcome:
        """`pass`, `refused` or `inconclusive`."""
        return verdict_of(self.rules)

    @property
    def comparison(self) -> Comparison | None:
        """The comparison that the policy judges by."""
        return self.comparisons.get(self.judged_by)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Rules that only warn and do not hold, that none refuses, test rows taken out, and what no rule looks at."""
        broken = [str(rule) for rule in self.rules if rule.warns]
        taken = [f"seen rows: {self.seen}"] if self.seen and self.seen.left < self.seen.of else []
        blunt = [] if any(rule.severity == "refuse" for rule in self.rules) else [f"rules: {NONE_REFUSES}"]
        free = [f"fairness {name}: the column is protected, and no rule of the policy looks" for name in self.unbounded]
        return (
            *broken,
            *blunt,
            *taken,
            *free,
            *(f"integration: {each}" for each in self.integration.warnings),
            *(f"rules.{name}: the policy names a rule that was not applied" for name in self.unused),
        )


def judged(
    task: Task,
    spec: EvaluationSpec,
    asked: GatePolicy,
    model: Manifest,
    part: Part,
    predictions: Mapping[str, Predictions],
    units: Units,
    features: Mapping[str, bool],
    data_checks: tuple[DataCheck, ...] = (),
    cost: Cost | None = None,
    seen: Seen | None = None,
    origins: Origins | None = None,
    integration: Suite = NOT_TRIED,
) -> Judgement:
    """Measure and judge predictions for the test rows.

    Args:
        task: Says which metrics there are.
        spec: What is measured.
        asked: The promotion policy as it is written.
        model: The candidate's manifest.
        part: The test rows.
        predictions: Of `candidate`, `baseline`, `constant` and, where there are such, `champion` and `boosted trees`.
        units: What the bootstrap draws.
        features: Names of features, by whether they are numeric: the worst slices of these are found.
        data_checks: Of the data that the candidate was made from.
        cost: Of the candidate, as it was measured.
        seen: Test rows that were taken out, as a model was fitted on them.
        origins: What is known of the data that the candidate was made from.
        integration: What came of the candidate's integration suite.
    """
    labels, policy = part.labels, asked.resolved(judging_of(task))
    metrics = {role: measure(task.name, labels, each) for role, each in predictions.items()}
    uncertainty, drawn = uncertainty_of(task, labels, predictions, units, spec)
    comparisons = _comparisons(metrics, drawn, policy.champion.confidence, units) if CHAMPION in metrics else {}
    guessing = _guessing(labels, predictions[CANDIDATE], drawn[CANDIDATE], policy, units, spec)
    shown = {role: each for role, each in predictions.items() if role in (CANDIDATE, CHAMPION)}
    limits, by = tuple(sorted(policy.slices or ())), policy.champion.metric
    slicing = Slicing(part.table, labels, shown, spec, task, limits, (by, policy.champion.confidence), units)
    slices, effect = tuple(slicing.named()), uncertainty.design_effect.get(judging_of(task).objective, 1.0)
    found, judged_slices = tuple(slicing.found(features, effect)), [each for each in slices if each.judged]
    fairness = tuple(fairness_of(part.table, labels, shown, spec, task, units))
    values = {metric: {each.name: each.metrics[CANDIDATE][metric] for each in judged_slices} for metric in limits}
    evidence = Evidence(
        *(model, metrics[CANDIDATE], metrics[BASELINE], comparisons.get(by), values, asked.slices is not None),
        data_checks=data_checks,
        cost=cost,
        guessing=guessing,
        comparisons=comparisons,
        slice_comparisons={each.name: one for each in judged_slices for one in each.comparisons.values()},
        seen=seen,
        fairness={each.column: each for each in fairness},
        origins=origins,
        integration=integration,
        counted=_counted(part, task),
    )
    rules, free = judge(policy, evidence), tuple(e.column for e in fairness if not policy.fairness.get(e.column))
    told = (rules, policy.unused(rules), seen, fairness, free, integration)
    return Judgement(metrics, uncertainty, guessing, comparisons, by, slices, found, *told)


def _guessing(
    labels: Array,
    candidate: Predictions,
    drawn: Mapping[str, Array],
    policy: GatePolicy,
    units: Units,
    spec: EvaluationSpec,
) -> Comparison | None:
    """The candidate against its own predictions of other rows, in the metric that candidates are compared in."""
    name, confidence = policy.champion.metric, policy.better_than_guessing
    if name is None or confidence is None:
        return None
    metric = metric_named(name)
    guessed, on_draws = on_shuffled(metric, labels, candidate, units, spec.bootstrap_samples, spec.seed)
    return compared(
        metric, metric.measure(labels, candidate), guessed, (drawn[name], on_draws), confidence, units.number
    )


def _counted(part: Part, task: Task) -> Counted:
    if part.groups is not None:
        return Counted(len(np.unique(part.groups)), groups=True)
    classes = np.unique(part.labels, return_counts=True)[1] if task.has_classes else None
    return Counted(len(part.rows), rarer=None if classes is None else int(classes.sum() - classes.max()))


def _comparisons(
    metrics: Mapping[str, Mapping[str, float]],
    drawn: Mapping[str, Mapping[str, Array]],
    confidence: float,
    units: Units,
) -> dict[str, Comparison]:
    """The candidate against the champion in every metric, from their values on all rows and on each draw."""
    ours, theirs = metrics[CANDIDATE], metrics[CHAMPION]
    draws = {name: (drawn[CANDIDATE][name], drawn[CHAMPION][name]) for name in ours}
    return {
        name: compared(metric_named(name), ours[name], theirs[name], draws[name], confidence, units.number)
        for name in ours
    }
