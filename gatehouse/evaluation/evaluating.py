"""Measures models side by side on the test rows, judges the candidate by the policy, and publishes the evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import Units, compared, interval
from gatehouse.evaluation.draws import PartMetrics, Sample, ShuffledMetric, measured_draws
from gatehouse.evaluation.fairness import fairness_of
from gatehouse.evaluation.gate import (
    NOT_TRIED,
    Comparison,
    Cost,
    DataCheck,
    Evidence,
    FittedTestRows,
    Origins,
    Outcome,
    RowCounts,
    Rule,
    Suite,
    applied_rules,
    kept_without_features,
    verdict_of,
)
from gatehouse.evaluation.group_measures import FAIRNESS, Fairness
from gatehouse.evaluation.result import EvaluateResult, Importance
from gatehouse.evaluation.slices import Slice, measured_slices
from gatehouse.evaluation.spec import IMPORTANCE, EvaluationSpec, GatePolicy
from gatehouse.metrics.catalogue import metric_named, metrics_for
from gatehouse.metrics.curves import calibration, confusion, histogram, positions, precision_recall, residuals, roc
from gatehouse.metrics.judging import TaskProfile
from gatehouse.metrics.metric import Array, Metric, Predictions, by_metric
from gatehouse.metrics.tasks import Task
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

CANDIDATE, CHAMPION, FLOOR, BASELINE, CONSTANT = "candidate", "champion", "floor", "baseline", "constant"
POINTS = 200
Curves = dict[str, list[list[float]]]


@dataclass(frozen=True)
class CandidateFacts:
    """Facts about a candidate besides its predictions; a rule that needs more finds it not checked."""

    model: Manifest
    checks: tuple[DataCheck, ...] = ()
    cost: Cost | None = None
    seen: FittedTestRows | None = None
    origins: Origins | None = None
    integration: Suite = NOT_TRIED
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Uncertainty:
    """Intervals of all metrics, by role and metric, and how they were drawn."""

    unit: str
    units: int
    samples: int
    intervals: Mapping[str, Mapping[str, tuple[float, float]]]


@dataclass(frozen=True)
class Measured:
    """The measurements, and the rules that the gate applied to it."""

    metrics: Mapping[str, Mapping[str, float]]
    uncertainty: Uncertainty
    slices: tuple[Slice, ...]
    fairness: tuple[Fairness, ...]
    evidence: Evidence
    rules: tuple[Rule, ...]
    unused: tuple[str, ...]
    unbounded: tuple[str, ...]
    lax: tuple[str, ...]

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
        free = [f"fairness {name}: the column is protected, and no rule of the policy looks" for name in self.unbounded]
        return (
            *broken,
            *self.lax,
            *removed,
            *free,
            *(f"integration: {warning}" for warning in self.evidence.integration.warnings),
            *(f"rules.{name}: the policy names a rule that was not applied" for name in self.unused),
        )


@dataclass(frozen=True)
class Evaluation:
    """Predictions for the test rows by role, what is measured on them, and the policy that judges the candidate.

    Attributes:
        name: Name of the evaluation that is published.
        profile: What the policy leaves to the task.
        inputs: References by role, empty for none.
        details: More facts for the manifest.
        importance: That of the candidate's features; empty where only its scores are known.
    """

    name: str
    task: Task
    spec: EvaluationSpec
    policy: GatePolicy
    profile: TaskProfile
    part: Part
    predictions: Mapping[str, Predictions]
    units: Units
    facts: CandidateFacts
    inputs: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    importance: Sequence[Importance] = ()

    def measured(self, store: ArtifactStore) -> Measured:
        """Measure the predictions of each role, and apply the rules of the policy to the candidate."""
        task, spec, predictions, units = self.task, self.spec, self.predictions, self.units
        labels, policy = self.part.labels, self.policy.resolved(self.profile)
        by, confidence = policy.champion.metric, policy.champion.confidence
        assert by is not None, "the policy is resolved"
        measures = metrics_for(task.name, (*spec.metrics, *policy.own_metrics))
        metrics = {
            role: {name: metric.measure(labels, read) for name, metric in measures.items()}
            for role, read in predictions.items()
        }
        sample = Sample(labels, predictions, units)
        uncertainty, drawn = uncertainty_of(measures, sample, spec, store)

        def with_other(role: str, name: str) -> Comparison:
            draws = (drawn[CANDIDATE][name], drawn[role][name])
            values = (metrics[CANDIDATE][name], metrics[role][name])
            return compared(metric_named(name), *values, draws, confidence, units.number)

        comparisons = {name: with_other(CHAMPION, name) for name in metrics[CANDIDATE] if CHAMPION in metrics}
        guessing = None
        if policy.better_than_guessing is not None:
            # The candidate against its own predictions of other rows, in the metric that models are compared in.
            measured = ShuffledMetric(role=CANDIDATE, metric=by, samples=spec.bootstrap_samples)
            (guessed,) = measured_draws(sample, [measured], spec.bootstrap_samples, spec.seed, store)
            values = metrics[CANDIDATE][by], float(guessed[:, 1].mean())
            draws = drawn[CANDIDATE][by], guessed[:, 0]
            guessing = compared(metric_named(by), *values, draws, policy.better_than_guessing, units.number)
        shown = replace(
            sample, predictions={role: read for role, read in predictions.items() if role in (CANDIDATE, CHAMPION)}
        )
        limits = tuple(sorted(policy.slices or ()))
        # A column is read when it is asked for; only an expression may ask for all of them.
        rows = self.part.table if isinstance(spec.slices, dict) else self.part.columns
        slices = measured_slices(*(rows, shown, spec, task, limits, (by, confidence), self.profile.objective, store))
        judged_slices = [entry for entry in slices if entry.judged]
        fairness = tuple(fairness_of(self.part.columns, shown, spec, task, store))
        if self.part.groups is not None:
            counted = RowCounts(len(np.unique(self.part.groups)), groups=True)
        else:
            # A row with a weight stands there several times.
            rows, first = np.unique(self.part.rows, return_index=True)
            classes = np.unique(labels[first], return_counts=True)[1] if task.has_classes else None
            counted = RowCounts(len(rows), rarer=None if classes is None else int(classes.sum() - classes.max()))
        evidence = Evidence(
            model=self.facts.model,
            candidate=metrics[CANDIDATE],
            baseline=metrics[BASELINE],
            comparison=comparisons.get(by),
            slices={name: {entry.name: entry.metrics[CANDIDATE][name] for entry in judged_slices} for name in limits},
            slices_requested=self.policy.slices is not None,
            data_checks=self.facts.checks,
            cost=self.facts.cost,
            guessing=guessing,
            comparisons=comparisons,
            slice_comparisons={entry.name: entry.comparisons[by] for entry in judged_slices if by in entry.comparisons},
            seen=self.facts.seen,
            fairness={measured.column: measured for measured in fairness},
            origins=self.facts.origins,
            integration=self.facts.integration,
            counted=counted,
            floor=with_other(FLOOR, by) if FLOOR in metrics else None,
            constant=metrics.get(CONSTANT, metrics[BASELINE]),
        )
        rules = applied_rules(policy, evidence)
        return Measured(
            metrics=metrics,
            uncertainty=uncertainty,
            slices=tuple(slices),
            fairness=fairness,
            evidence=evidence,
            rules=rules,
            unused=policy.unused(tuple(rule.name for rule in rules)),
            unbounded=tuple(measured.column for measured in fairness if not policy.fairness.get(measured.column)),
            lax=tuple(kept_without_features(policy, evidence)),
        )

    def published(self, store: ArtifactStore) -> EvaluateResult:
        """Publish what was measured, with the verdict."""
        measured = self.measured(store)
        resolved, evidence, bins = self.policy.resolved(self.profile), measured.evidence, self.spec.calibration_bins
        shown = {role: read for role, read in self.predictions.items() if role not in (CONSTANT, FLOOR)}
        unchecked = [f"{check.name}: {text}" for check in self.facts.checks for text in check.warnings]
        facts, seen, origins = self.facts, self.facts.seen, self.facts.origins
        verdict = {
            "verdict": measured.verdict,
            "rules": [asdict(rule) for rule in measured.rules],
            "guessing": asdict(evidence.guessing) if evidence.guessing else None,
            "comparison": asdict(evidence.comparison) if evidence.comparison else None,
            "floor": asdict(evidence.floor) if evidence.floor else None,
            "comparisons": {
                metric: asdict(comparison) | {"smallest_shown": comparison.smallest_shown(resolved.champion.confidence)}
                for metric, comparison in evidence.comparisons.items()
            },
            "seen": asdict(seen) if seen else None,
            "counted": asdict(evidence.counted) if evidence.counted else None,
            "policy": identity_of(resolved),
            "warnings": [*measured.warnings, *unchecked, *facts.warnings],
        }
        # Numbers that differ each time are in the evaluation only if the policy bounds them.
        if facts.cost and resolved.cost.measures:
            verdict["cost"] = asdict(facts.cost)
        if facts.integration is not NOT_TRIED:
            verdict["integration"] = asdict(facts.integration)
        files: dict[str, Any] = {
            "metrics.json": measured.metrics,
            "uncertainty.json": asdict(measured.uncertainty),
            "slices.json": [asdict(entry) for entry in measured.slices],
            "curves.json": {
                role: curves_of(self.profile.curves, self.part.labels, read, bins) for role, read in shown.items()
            },
            "verdict.json": verdict,
        }
        if self.importance:
            files[IMPORTANCE] = [asdict(entry) for entry in self.importance]
        if measured.fairness:
            files[FAIRNESS] = [asdict(fairness) for fairness in measured.fairness]
        level, labels = self.task.level, self.part.labels
        published = store.publish(
            "evaluations",
            self.name,
            {file: canonical_json(body) for file, body in files.items()},
            derived_from={role: reference for role, reference in self.inputs.items() if reference},
            configuration={"spec": identity_of(self.spec), "policy": identity_of(self.policy)},
            details={
                "verdict": measured.verdict,
                "task": self.task.name,
                "rows": len(np.unique(self.part.rows)),
                "level": {"title": level.title, "is_share": level.is_share, "value": level.of(labels, labels)[0]},
            }
            | dict(self.details),
        )
        return EvaluateResult(
            evaluation=str(published),
            verdict=measured.verdict,
            reasons=tuple(str(rule) for rule in measured.rules if rule.refuses),
            warnings=(*measured.warnings, *facts.warnings),
            metrics=measured.metrics[CANDIDATE],
            champion_metrics=measured.metrics.get(CHAMPION, {}),
            baseline_metrics=measured.metrics[BASELINE],
            summary="; ".join([f"intervals from draws of {self.units}", *map(str, measured.fairness)]),
            transient=bool((seen and seen.transient) or (origins and origins.transient)),
        )


def uncertainty_of(
    metrics: Mapping[str, Metric], sample: Sample, spec: EvaluationSpec, store: ArtifactStore | None = None
) -> tuple[Uncertainty, dict[str, dict[str, Array]]]:
    """The intervals of metrics, and the values on each draw, by role and metric; the candidate is first.

    Roles are measured on the same draws; many rows in pieces, except without a store.
    """
    drawn: dict[str, dict[str, Array]] = {}
    intervals, units = {}, sample.units
    measured = [PartMetrics(role=role, metrics=(tuple(metrics),)) for role in sample.predictions]
    numbers_of = measured_draws(sample, measured, spec.bootstrap_samples, spec.seed, store)
    for (role, read), numbers in zip(sample.predictions.items(), numbers_of, strict=True):
        columns = by_metric([*metrics.values()], numbers)
        by_name = dict(zip(metrics, columns, strict=True))
        drawn[role] = {name: values[:, 0] for name, values in by_name.items()}
        intervals[role] = {
            name: interval(metrics[name], values, units.number, sample.labels, read) for name, values in by_name.items()
        }
    return Uncertainty(units.name, units.number, spec.bootstrap_samples, intervals), drawn


def curves_of(names: tuple[str, ...], labels: Array, predictions: Predictions, calibration_bins: int) -> Curves:
    """Curves by name, each a list of points.

    - `roc`: false positive rate, true positive rate, threshold.
    - `precision_recall`: recall, precision; of a long curve without the jumps of the first few rows.
    - `calibration`: mean probability, observed rate and rows of each group of about equal size.
    - `histogram`: left edge of the bin, and the share of the rows of label 0 and of label 1 that is in it.
    - `confusion`: label, predicted class, rows; -1 for classes that are not shown. Of two classes, the second is
      predicted from the threshold of the model on.
    - `confidence`: as `calibration`, of the chance that a model gives the class that it predicts.
    - `predicted`: as `calibration`, of predicted numbers and labels.
    - `residuals`: left edge of the bin, and the share of rows whose error is in it.
    - `positions`: place, mean label of the rows at it by score, and at best.
    """
    drawn: dict[str, Callable[[], Array]] = {
        "roc": lambda: thin(roc(labels, predictions.scores)),
        "precision_recall": lambda: thin(precision_recall(labels, predictions.scores), begin=1 / POINTS),
        "calibration": lambda: calibration(labels, predictions.form("probabilities"), calibration_bins),
        "histogram": lambda: histogram(labels, predictions.form("probabilities")),
        "confusion": lambda: confusion(labels, predictions.form("classes")),
        "confidence": lambda: calibration(
            labels == predictions.form("classes"), predictions.form("probabilities").max(axis=1), calibration_bins
        ),
        "predicted": lambda: calibration(labels, predictions.scores, calibration_bins),
        "residuals": lambda: residuals(labels, predictions.scores),
        "positions": lambda: positions(labels, predictions.scores, predictions.form("groups")),
    }
    return {name: drawn[name]().tolist() for name in names}


def thin(points: Array, begin: float = 0.0) -> Array:
    """At most `POINTS` points of a curve, its ends among them, evenly spaced along its length.

    Length is measured in the first two columns, so that steep and flat parts are drawn equally well. A longer curve
    starts where its first column reaches `begin`: with a few rows precision jumps.
    """
    if len(points) > POINTS:
        points = points[points[:, 0] >= begin]
    if len(points) <= POINTS:
        return points
    steps = np.abs(np.diff(points[:, :2], axis=0)).sum(axis=1)
    length = np.concatenate([[0.0], np.cumsum(steps)])
    chosen = np.searchsorted(length, np.linspace(0.0, length[-1], POINTS))
    kept: Array = np.unique([0, *np.minimum(chosen, len(points) - 1), len(points) - 1])
    thinned: Array = points[kept]
    return thinned
