"""Measures models beside each other on the test rows, and judges the candidate."""

from collections.abc import Mapping
from dataclasses import dataclass

from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.evaluation.comparison import compare
from gatehouse.components.evaluation.gate import Comparison, DataCheck, Evidence, Rule, judge, verdict_of
from gatehouse.components.evaluation.parts import Part
from gatehouse.components.evaluation.slices import Slice, slice_metrics
from gatehouse.components.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.components.metrics.catalogue.found import measure, metric_named
from gatehouse.components.metrics.catalogue.metric import Predictions
from gatehouse.components.tasks.judging import judging_of
from gatehouse.components.tasks.task import Task

CANDIDATE, CHAMPION, BASELINE, TREES, CONSTANT = "candidate", "champion", "baseline", "boosted trees", "constant"


@dataclass(frozen=True)
class Judgement:
    """What was found: metrics by role, the comparison with the champion, slices, and the rules as they were applied."""

    metrics: Mapping[str, Mapping[str, float]]
    comparison: Comparison | None
    slices: tuple[Slice, ...]
    rules: tuple[Rule, ...]

    @property
    def verdict(self) -> str:
        """`pass` or `refused`."""
        return verdict_of(self.rules)


def judged(
    task: Task,
    spec: EvaluationSpec,
    asked: GatePolicy,
    model: Manifest,
    part: Part,
    predictions: Mapping[str, Predictions],
    data_checks: tuple[DataCheck, ...] = (),
) -> Judgement:
    """Measure and judge predictions for the test rows.

    Args:
        task: Says which metrics there are.
        spec: What is measured.
        asked: The promotion policy as it is written.
        model: The candidate's manifest.
        part: The test rows.
        predictions: Of `candidate`, `baseline`, `constant` and, where there are such, `champion` and `boosted trees`.
        data_checks: Of the data that the candidate was made from.
    """
    labels, policy = part.labels, asked.resolved(judging_of(task))
    metrics = {role: measure(task.name, labels, each) for role, each in predictions.items()}
    comparison = None
    if CHAMPION in predictions:
        comparison = compare(
            metric_named(policy.champion.metric or ""),
            labels,
            predictions[CANDIDATE],
            predictions[CHAMPION],
            confidence=policy.champion.confidence,
            samples=spec.bootstrap_samples,
            seed=spec.seed,
        )
    shown = {role: each for role, each in predictions.items() if role in (CANDIDATE, CHAMPION)}
    limits = tuple(sorted(policy.slices or ()))
    slices = tuple(slice_metrics(part.table, labels, shown, spec, task, limits))
    values = {
        metric: {each.name: each.metrics[CANDIDATE][metric] for each in slices if each.judged} for metric in limits
    }
    evidence = Evidence(
        model,
        metrics[CANDIDATE],
        metrics[BASELINE],
        comparison,
        values,
        slices_asked=asked.slices is not None,
        data_checks=data_checks,
    )
    rules = judge(policy, evidence)
    return Judgement(metrics, comparison, slices, rules)
