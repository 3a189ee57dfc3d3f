"""The catalogue: every file of the room is a metric, and every metric keeps what all of them promise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gatehouse.errors import ConfigurationError
from gatehouse.metrics.catalogue import found
from gatehouse.metrics.catalogue.found import NAMES, MetricName, measure, metric_named, metrics_for
from gatehouse.metrics.catalogue.metric import Predictions, all_on_draws
from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.judging import judging_of
from gatehouse.store.code import closure_of


def example(task: str, rows: int, seed: int, noise: float = 1.0) -> tuple[Any, Predictions]:
    """Labels, and predictions that are right but for some noise; half of the predictions are rounded, for ties."""
    draw = np.random.default_rng(seed)
    truth, off = draw.normal(size=rows), noise * draw.normal(size=rows)
    groups = draw.integers(0, max(rows // 20, 3), rows)
    if task == "multiclass":
        labels = draw.integers(0, 3, rows)
        scores = np.eye(3)[labels] * 2 + noise * draw.normal(size=(rows, 3))
        predicted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return labels, TASKS[task].read(predicted, groups)
    predicted = truth + off
    predicted[::2] = np.round(predicted[::2], 1)
    if task == "binary":
        return (truth > 0).astype(np.int8), TASKS[task].read(1 / (1 + np.exp(-2 * predicted)), groups)
    labels = np.round(np.abs(truth)) if task == "ranking" else truth
    return labels, TASKS[task].read(np.abs(predicted) if task == "ranking" else predicted, groups)


def drawn_rows(labels: Any, predictions: Predictions, times: Any) -> tuple[Any, Predictions]:
    """The rows as often as each was drawn; a group that is drawn twice is two groups."""
    rows = np.repeat(np.arange(len(times)), times)
    copy = np.concatenate([np.arange(each) for each in times])
    taken = predictions.take(rows)
    groups = None if taken.groups is None else taken.groups * (times.max() + 1) + copy
    return labels[rows], replace(taken, groups=groups)


CASES = [(name, task) for name in NAMES for task in metric_named(name).tasks]


def test_the_metrics_are_the_files_of_the_room() -> None:
    folder = Path(found.__file__).parents[1]
    assert set(NAMES) == {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {metric_named(name): name for name in NAMES} == {
        metric_named(name): metric_named(name).name for name in NAMES
    }


def test_every_metric_is_for_tasks_that_there_are() -> None:
    for name in NAMES:
        assert metric_named(name).tasks
        assert set(metric_named(name).tasks) <= set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_watches_and_judges_by_metrics_of_its_own(task: str) -> None:
    offered = metrics_for(task)
    assert set(TASKS[task].watched) <= set(offered)
    if task == BINARY.name:
        judging = judging_of(BINARY)
        assert {judging.objective, *judging.leakage_alarm, *judging.slices} <= set(offered)


@pytest.mark.parametrize(("name", "task"), CASES)
@given(st.integers(0, 1000), st.integers(1, 40))
def test_a_prepared_metric_equals_the_plain_one_on_every_draw(name: str, task: str, seed: int, rows: int) -> None:
    labels, predictions = example(task, rows, seed)
    metric = metric_named(name)
    ranked = metric.reads == "groups"
    unit = np.unique(predictions.form("groups"), return_inverse=True)[1] if ranked else np.arange(rows)
    drawn = np.random.default_rng(seed).integers(0, unit.max() + 1, unit.max() + 1)
    times = np.bincount(drawn, minlength=unit.max() + 1)[unit]
    expected = metric.measure(*drawn_rows(labels, predictions, times))
    assert metric.prepare is not None
    for each in (metric,) if ranked else (metric, replace(metric, prepare=None, gaps=None, groups=0)):
        assert each.on_draws(labels, predictions)(times.astype(float)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert np.isnan(metric.on_draws(labels, predictions)(np.zeros(rows)))


def test_what_metrics_count_in_the_same_way_is_counted_once_a_draw() -> None:
    calls = []

    def prepare(labels: Any, classes: Any) -> Any:
        return lambda times: calls.append(times) or len(calls)

    alike = [
        replace(metric_named(name), prepare=prepare, of_counts=lambda count: 10.0 * count) for name in ("f1", "mcc")
    ]
    drawn = all_on_draws([*alike, metric_named("accuracy")], *example("binary", 20, 3))
    assert drawn(np.ones(20))[:2] == [10.0, 10.0]
    assert len(calls) == 1


@pytest.mark.parametrize(("name", "task"), CASES)
def test_one_row_gives_a_number_and_a_score_that_is_nan_gives_none(name: str, task: str) -> None:
    metric, (labels, predictions) = metric_named(name), example(task, 20, 3)
    assert np.isfinite(metric.measure(labels[:1], predictions.take(np.arange(1))))
    scores = np.asarray(predictions.scores, np.float64).copy()
    scores[7] = np.nan
    broken = TASKS[task].read(scores, predictions.groups)
    assert np.isnan(metric.measure(labels, broken))
    assert np.isnan(metric.on_draws(labels, broken)(np.ones(20)))
    if metric.reads != "classes":
        assert np.isnan(metric(labels, scores, *([broken.groups] if metric.reads == "groups" else [])))


@pytest.mark.parametrize("name", sorted(metrics_for("multiclass")))
def test_a_class_that_labels_lack_and_one_that_the_model_does_not_know(name: str) -> None:
    draw, metric = np.random.default_rng(5), metric_named(name)
    labels, scores = draw.integers(1, 5, 60), draw.dirichlet(np.ones(4), 60)
    found = metric.measure(labels, TASKS["multiclass"].read(scores, None))
    padded = np.column_stack([scores, np.zeros(60)])
    assert found == pytest.approx(metric.measure(labels, TASKS["multiclass"].read(padded, None)), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in NAMES if metric_named(name).reads == "classes"])
def test_two_classes_are_those_of_the_binary_task(name: str) -> None:
    labels, predictions = example("binary", 200, 4)
    assert predictions.classes is not None and predictions.classes.dtype == bool
    assert metric_named(name).measure(labels, predictions) == metric_named(name)(labels, predictions.scores >= 0.5)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_better_model_is_better(name: str, task: str) -> None:
    metric = metric_named(name)
    good, bad = (metric.measure(*example(task, 2000, 7, noise)) for noise in (0.2, 3.0))
    assert metric.is_better(good, bad)
    assert not metric.is_better(bad, good)
    assert metric.worse_by(bad, good) == -metric.worse_by(good, bad) > 0


def guessed(task: str, seed: int) -> tuple[Any, Predictions]:
    """Labels, and a model that knows nothing: it says the same of every row, for numbers their mean."""
    draw = np.random.default_rng(seed)
    labels = example(task, 40, seed)[0] if task != "multiclass" else draw.integers(0, 2 + seed % 3, 40)
    if task == "multiclass":
        said = np.tile(draw.random(2 + seed % 3), (40, 1))
    else:
        said = np.full(40, {"binary": draw.random(), "ranking": 0.5}.get(task, labels.mean()))
    return labels, TASKS[task].read(said, draw.integers(0, 4, 40))


@pytest.mark.parametrize(("name", "task"), CASES)
def test_a_metric_declares_the_value_of_guesses_if_it_is_always_the_same(name: str, task: str) -> None:
    values = [metric_named(name).measure(*guessed(task, seed)) for seed in range(9)]
    chance = values[0] if np.ptp(values) < 1e-9 else None
    assert metric_named(name).chance.get(task) == (chance if chance is None else pytest.approx(chance, abs=1e-9))
    assert set(metric_named(name).chance) <= set(metric_named(name).tasks)


def test_a_name_that_other_programs_use_is_told_ours() -> None:
    named = [(alias, name) for name in NAMES for alias in metric_named(name).aliases]
    assert ("auc", "roc_auc") in named
    assert len(dict(named)) == len(named) and not set(dict(named)) & set(NAMES)
    for alias, name in named:
        with pytest.raises(ValidationError, match=rf"did you mean {name}\?\), found '{alias.upper()}'"):
            TypeAdapter(MetricName).validate_python(alias.upper())


@pytest.mark.parametrize(("name", "task"), CASES)
@given(st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(name: str, task: str, seed: int) -> None:
    labels, predictions = example(task, 30, seed)
    shuffled = np.random.default_rng(seed).permutation(30)
    expected = metric_named(name).measure(labels, predictions)
    again = metric_named(name).measure(labels[shuffled], predictions.take(shuffled))
    assert again == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_never_better(name: str) -> None:
    assert not metric_named(name).is_better(float("nan"), 0.5)
    assert not metric_named(name).is_better(0.5, float("nan"))


def test_measure_gives_all_metrics_of_a_task() -> None:
    labels, predictions = example("regression", 50, 1)
    expected = {"mae", "mape", "mse", "pinball_p10", "pinball_p90", "r2", "rmse"}
    assert set(measure("regression", labels, predictions)) == expected


def test_an_unknown_metric_is_told_what_there_is() -> None:
    with pytest.raises(ConfigurationError, match=r"accuracy, average_precision, .*found 'speed'"):
        metric_named("speed")


def test_a_file_without_its_metric_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(found, "NAMES", (*NAMES, "catalogue"))
    with pytest.raises(ConfigurationError, match="expected a metric named catalogue"):
        metric_named("catalogue")


def test_what_uses_the_catalogue_has_every_metric_in_its_digest() -> None:
    closure = closure_of("gatehouse.metrics.catalogue.found", lambda _: False)
    assert {f"gatehouse.metrics.{name}" for name in NAMES} <= closure


def test_numbers_are_written_as_a_metric_says() -> None:
    assert metric_named("roc_auc").text(0.75186) == "0.7519"
    assert metric_named("mae").text(1234.56) == "1235"
