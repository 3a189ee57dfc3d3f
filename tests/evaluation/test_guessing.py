"""The gate's rule on guessing: who knows nothing of the rows is seldom shown to be better, and who knows some is."""

import math
from typing import Any

import numpy as np
import pytest

from gatehouse.evaluation.bootstrap import Units, compared, on_draws, shuffled
from gatehouse.evaluation.draws import Sample, ShuffledMetric
from gatehouse.evaluation.gate import Comparison, Evidence, Rule, applied_rules, verdict_of
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.metric import Metric, Predictions, all_on_draws
from gatehouse.metrics.tasks import TASKS
from tests.evaluation.test_gate import MODEL

ROWS = 300
GROUPS = np.arange(ROWS) // 10
BLIND = ("calibration_error", "calibration_error_debiased", "precision_at_10")
"""Metrics that the level of predictions decides, or that no order of ten rows changes."""


def _rule(worst: float, best: float, units: int | None = None, policy: GatePolicy | None = None) -> list[Rule]:
    result = Comparison("log_loss", 0.5, 0.5 - (worst + best) / 2, (worst + best) / 2, worst, best, units=units)
    return _guessed(result, policy)


def _guessed(result: Comparison, policy: GatePolicy | None = None) -> list[Rule]:
    evidence = Evidence(MODEL, {}, {}, None, {}, False, guessing=result)
    return [rule for rule in applied_rules(policy or GatePolicy(), evidence) if rule.name.startswith("guessing")]


@pytest.mark.parametrize(
    ("worst", "best", "units", "verdict"),
    [
        (-0.001, -0.02, None, "pass"),
        (0.0, -0.02, None, "inconclusive"),
        (0.01, -0.02, None, "inconclusive"),
        (0.0, 0.0, None, "refused"),
        (0.02, 0.01, None, "refused"),
        (math.nan, math.nan, None, "refused"),
        (-0.001, -0.02, 19, "inconclusive"),
        (-0.001, -0.02, 20, "pass"),
    ],
)
def test_only_who_is_better_at_the_worst_bound_passes(
    worst: float, best: float, units: int | None, verdict: str
) -> None:
    rules = _rule(worst, best, units)
    assert verdict_of(tuple(rules)) == verdict
    assert [rule.name for rule in rules] == ["guessing log_loss"]


def _labels(task: str, draw: np.random.Generator) -> Any:
    if task == "multiclass":
        return draw.choice(3, ROWS, p=[0.5, 0.3, 0.2])
    if task == "regression":
        return draw.exponential(size=ROWS)
    return (draw.random(ROWS) < 0.3).astype(float)


def _predictions(task: str, signal: Any, draw: np.random.Generator) -> Predictions:
    """Predictions that follow a signal and noise, and whose level is not that of the labels."""
    scores = signal + 0.5 * draw.normal(size=len(signal))
    if task == "multiclass":
        logits = np.column_stack([0.3 - scores, np.zeros(ROWS), scores])
        return TASKS[task].read(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), None)
    if task == "binary":
        return TASKS[task].read(1 / (1 + np.exp(-scores)), None)
    return TASKS[task].read(1.4 + 0.3 * scores, GROUPS if task == "ranking" else None)


def _shown(task: str, metric: Metric, labels: Any, predictions: Predictions) -> str:
    units = Units.single(ROWS, predictions.groups)
    measure = ShuffledMetric(role="candidate", metric=metric.name, samples=100)
    guessed = measure.on_draws(Sample(labels, {"candidate": predictions}, units), range(100), 7)
    drawn = on_draws(all_on_draws([metric], labels, predictions), units, range(100), 7)[:, 0]
    values = metric.measure(labels, predictions), float(guessed[:, 1].mean())
    result = compared(metric, *values, (drawn, guessed[:, 0]), 0.95, units.number)
    return verdict_of(tuple(_guessed(result)))


@pytest.mark.parametrize(("task", "name"), [(task, name) for task in TASKS for name in metrics_for(task)])
def test_who_knows_nothing_is_seldom_shown_to_be_better_in_any_metric(task: str, name: str) -> None:
    draw, metric, verdicts = np.random.default_rng(1), metrics_for(task)[name], []
    for _ in range(20):
        verdicts.append(_shown(task, metric, _labels(task, draw), _predictions(task, np.zeros(ROWS), draw)))
    # Of 20 at 5 %, 6 or more pass with a chance below four in ten thousand.
    assert verdicts.count("pass") <= 5


@pytest.mark.parametrize(
    ("task", "name"),
    [(task, name) for task in TASKS for name in metrics_for(task) if name not in BLIND],
)
def test_who_knows_the_rows_is_shown_to_be_better_though_its_level_is_wrong(task: str, name: str) -> None:
    draw = np.random.default_rng(2)
    labels = _labels(task, draw)
    predictions = _predictions(task, 2.0 * (labels - labels.mean()), draw)
    assert _shown(task, metrics_for(task)[name], labels, predictions) == "pass"


def test_predictions_of_a_ranking_stay_in_their_group() -> None:
    groups = np.random.default_rng(4).permutation(GROUPS)
    scores = groups + np.random.default_rng(5).random(ROWS)
    made = [shuffled(TASKS["ranking"].read(scores, groups), ROWS, 7, number) for number in range(3)]
    assert all(
        (np.floor(entry.scores) == groups).all() and (np.sort(entry.scores) == np.sort(scores)).all() for entry in made
    )
    assert all((entry.scores != scores).mean() > 0.5 for entry in made)
    assert len({entry.scores.tobytes() for entry in made}) == 3
    # A deal shares no generator with the draw of its number.
    of_draw = np.empty(ROWS, np.int64)
    of_draw[np.argsort(groups, kind="stable")] = np.lexsort((np.random.default_rng([7, 0]).random(ROWS), groups))
    assert (made[0].scores != scores[of_draw]).mean() > 0.5
