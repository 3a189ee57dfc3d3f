"""Every metric against scikit-learn or its definition, and on draws against the drawn rows."""

import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from sklearn import metrics as sklearn
from sklearn.preprocessing import label_binarize

from gatehouse.errors import ConfigurationError
from gatehouse.metrics import classification, ranking
from gatehouse.metrics.catalogue import ALIASES, METRICS, MetricName, is_minimized, metric_named, metrics_for
from gatehouse.metrics.curves import calibration
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import TASKS

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
VALUES = st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3)


def _columns(rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(np.array(column) for column in zip(*rows, strict=True))


BINARY = st.lists(st.tuples(st.integers(0, 1), SCORES), min_size=1, max_size=60).map(_columns)
BOTH = BINARY.filter(lambda columns: len(set(columns[0])) == 2)
CLASSES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60).map(_columns)
TRUTHS = st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=1, max_size=60).map(_columns)
NUMBERS = st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=60).map(_columns)
RANKINGS = st.lists(st.tuples(st.integers(0, 3), SCORES, st.integers(0, 4)), min_size=1, max_size=40).map(_columns)
SMALL_RANKINGS = (
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2).map(float), st.integers(0, 3)), min_size=1, max_size=12)
    .filter(lambda rows: max(np.bincount([group for _, _, group in rows])) <= 6)
    .map(_columns)
)


@st.composite
def _class_probabilities(draw: st.DrawFn) -> tuple[Any, Any]:
    """Labels and the probability of each of two to five classes; not every class has a row."""
    classes, rows = draw(st.integers(2, 5)), draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    weights = st.lists(st.integers(0, 4), min_size=classes, max_size=classes).filter(any)
    rated = draw(st.lists(weights, min_size=rows, max_size=rows))
    return np.array(labels), np.array([np.array(row) / sum(row) for row in rated])


SEVERAL = _class_probabilities()


def _one_against_rest(of: Callable[..., float]) -> Callable[..., float]:
    def expected(labels: Any, probabilities: Any) -> float:
        names = np.unique(labels)
        assume(len(names) > 2)
        return float(of(label_binarize(labels, classes=names), probabilities[:, names], average="macro"))

    return expected


def _mape(labels: Any, values: Any) -> float:
    kept = np.abs(labels) >= np.finfo(np.float64).eps
    return sklearn.mean_absolute_percentage_error(labels[kept], values[kept]) if kept.any() else 1.0


def _r2(labels: Any, values: Any) -> float:
    assume(np.ptp(labels) > 1e-6)  # With equal labels the sum of squares is a rounding error of scikit-learn.
    return float(sklearn.r2_score(labels, values))


def _per_group(of: Callable[..., float]) -> Callable[..., float]:
    """The mean over groups with a relevant row."""

    def expected(labels: Any, scores: Any, groups: Any) -> float:
        parts = [(labels[groups == group], scores[groups == group]) for group in np.unique(groups)]
        values = [of(*part) for part in parts if part[0].any()]
        return float(np.mean(values)) if values else 0.0

    return expected


def _ndcg(most: int | None) -> Callable[..., float]:
    # Scikit-learn refuses a single row.
    return _per_group(
        lambda labels, scores: 1.0 if len(labels) == 1 else sklearn.ndcg_score([labels], [scores], k=most)
    )


def _over_orders(of: Callable[[list[bool]], float]) -> Callable[..., float]:
    """The mean over all orders of the rows of equal score, one by one."""

    def mean(labels: Any, scores: Any) -> float:
        rows = list(zip(scores, labels > 0, strict=True))
        orders = [order for order in permutations(rows) if list(order) == sorted(order, key=lambda row: -row[0])]
        return float(np.mean([of([relevant for _, relevant in order]) for order in orders]))

    return _per_group(mean)


def _precision_at(places: int) -> Callable[..., float]:
    return _over_orders(lambda relevant: sum(relevant[:places]) / places)


REFERENCES: list[tuple[str, Any, Callable[..., float]]] = [
    ("accuracy", CLASSES, sklearn.accuracy_score),
    ("balanced_accuracy", CLASSES | TRUTHS, sklearn.balanced_accuracy_score),
    ("mcc", CLASSES | TRUTHS, sklearn.matthews_corrcoef),
    *(
        (name, rows, lambda labels, classes, of=of, average=average: of(
            labels, classes.astype(int), average=average, zero_division=0
        ))
        for name, of in (
            ("precision", sklearn.precision_score), ("recall", sklearn.recall_score), ("f1", sklearn.f1_score)
        )
        for rows, average in ((CLASSES, "macro"), (TRUTHS, "binary"))
    ),
    ("roc_auc", BOTH, sklearn.roc_auc_score),
    ("roc_auc", SEVERAL, _one_against_rest(sklearn.roc_auc_score)),
    ("average_precision", BOTH, sklearn.average_precision_score),
    ("average_precision", SEVERAL, _one_against_rest(sklearn.average_precision_score)),
    ("brier", BOTH, sklearn.brier_score_loss),
    ("brier", SEVERAL, lambda labels, probabilities: sklearn.brier_score_loss(
        labels, probabilities, labels=np.arange(probabilities.shape[1]), scale_by_half=False
    )),
    ("log_loss", BINARY, lambda labels, p: sklearn.log_loss(labels, np.clip(p, 1e-15, 1 - 1e-15), labels=[0, 1])),
    ("log_loss", SEVERAL.map(lambda rows: (rows[0], (rows[1] + 0.01) / (rows[1] + 0.01).sum(axis=1, keepdims=True))),
     lambda labels, p: sklearn.log_loss(labels, p, labels=range(p.shape[1]))),
    ("mae", NUMBERS, sklearn.mean_absolute_error),
    ("mse", NUMBERS, sklearn.mean_squared_error),
    ("rmse", NUMBERS, sklearn.root_mean_squared_error),
    ("mape", NUMBERS, _mape),
    ("r2", NUMBERS, _r2),
    ("pinball_p10", NUMBERS, lambda *rows: sklearn.mean_pinball_loss(*rows, alpha=0.1)),
    ("pinball_p90", NUMBERS, lambda *rows: sklearn.mean_pinball_loss(*rows, alpha=0.9)),
    ("ndcg", RANKINGS, _ndcg(None)),
    ("ndcg_at_10", RANKINGS, _ndcg(10)),
    ("mean_average_precision", RANKINGS, _per_group(
        lambda labels, scores: sklearn.average_precision_score(labels > 0, scores)
    )),
    ("mean_reciprocal_rank", SMALL_RANKINGS, _over_orders(lambda relevant: 1 / (relevant.index(True) + 1))),
    ("precision_at_1", SMALL_RANKINGS, _precision_at(1)),
    ("precision_at_5", SMALL_RANKINGS, _precision_at(5)),
    ("precision_at_10", SMALL_RANKINGS, _precision_at(10)),
]  # fmt: skip
"""Metric, rows, and the value of these rows by scikit-learn or by definition."""

EDGES: list[tuple[str, list[Any], float]] = [
    ("roc_auc", [[1, 1], [0.1, 0.2]], 0.5),
    ("roc_auc", [[0, 1, 1, 0], [0.3] * 4], 0.5),
    ("average_precision", [[0, 0], [0.1, 0.2]], 0.0),
    ("average_precision", [[0, 1, 1, 0], [0.3] * 4], 0.5),
    ("balanced_accuracy", [[0, 0, 1], [0, 2, 1]], 0.75),
    ("f1", [[0, 0], [False, False]], 0.0),
    ("f1", [[0, 0, 1], [0, 2, 0]], 1 / 6),
    ("precision", [[0, 1], [False, False]], 0.0),
    ("precision", [[0, 0, 1], [0, 2, 0]], 1 / 6),
    ("recall", [[0, 0], [True, False]], 0.0),
    ("mcc", [[1, 1], [True, True]], 0.0),
    ("log_loss", [[1], [0.0]], 34.538776394910684),
    ("log_loss", [[2, 2], [[0.5, 0.5], [1.0, 0.0]]], 34.538776394910684),  # A class that the model does not know.
    ("mape", [[0.0, 2.0], [0.1, 1.0]], 0.5),
    ("mape", [[0.0, 0.0], [0.1, 1.0]], 1.0),
    ("mape", [[10.0, -10.0], [9.0, -12.0]], 0.15),
    ("r2", [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], 1.0),
    ("r2", [[0.1, 0.1, 0.1], [0.2, 0.2, 0.2]], 0.0),  # Equal labels whose rounded mean differs from them.
    ("calibration_error", [[0] * 500 + [1] * 500, [0.9] * 1000], 0.4),
    ("calibration_error", [[0] * 500 + [1] * 500, [0.25] * 500 + [0.75] * 500], 0.25),
    ("ndcg", [[0.0, 2.0, 1.0], [0.9, 0.5, 0.1], [0, 0, 0]], (2 / np.log2(3) + 1 / 2) / (2 + 1 / np.log2(3))),
    ("ndcg", [[1.0, 0.0], [0.0, 0.0], [0, 0]], (1 + 1 / np.log2(3)) / 2),
    ("ndcg", [[0.0, 0.0], [0.0, 0.0], [0, 0]], 0.0),
    ("ndcg_at_10", [[0] * 10 + [1, 0], [-place for place in range(12)], [0] * 12], 0.0),
    ("mean_average_precision", [[0, 2, 0, 1, 1], [4.0, 3, 2, 1, 0], [3, 3, 3, 3, 9]], ((1 / 2 + 2 / 4) / 2 + 1) / 2),
    ("precision_at_5", [[1, 1], [0.0, 1.0], [0, 0]], 0.4),
]  # fmt: skip


@pytest.mark.parametrize(("name", "rows", "reference"), REFERENCES)
@given(st.data())
def test_metrics_agree_with_their_reference(
    name: str, rows: st.SearchStrategy[Any], reference: Any, data: st.DataObject
) -> None:
    columns = data.draw(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference(*columns)
    assert metric_named(name)(*columns) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_every_metric_has_a_reference() -> None:
    alone = {"calibration_error", "calibration_error_debiased"}  # Scikit-learn has none.
    assert {name for name, *_ in REFERENCES} | alone == set(METRICS)


@pytest.mark.parametrize(("name", "columns", "expected"), EDGES)
def test_edges(name: str, columns: list[Any], expected: float) -> None:
    assert metric_named(name)(*map(np.array, columns)) == pytest.approx(expected)


def test_the_debiased_calibration_error_is_what_its_authors_draw() -> None:
    draw = np.random.default_rng(3)
    probabilities = draw.uniform(0.05, 0.6, 2000)
    labels = (draw.random(2000) < probabilities**1.2).astype(np.float64)
    predicted, observed, counts = calibration(labels, probabilities, 20).T
    rates = draw.normal(observed, np.sqrt(observed * (1 - observed) / counts), (200_000, 20))
    again = np.sum(np.abs(predicted - rates) * counts, axis=1).mean() / counts.sum()
    plain = classification.calibration_error(labels, probabilities)
    debiased = classification.calibration_error_debiased(labels, probabilities)
    assert debiased == pytest.approx(2 * plain - again, abs=1e-4)
    many = np.repeat([0, 1], 50_000)
    assert classification.calibration_error_debiased(many, np.full(100_000, 0.9)) == pytest.approx(0.4, abs=1e-6)


def test_large_inputs_neither_overflow_nor_need_a_square_of_memory() -> None:
    labels = np.repeat([0, 1], 500_000)
    assert [classification.mcc(labels, labels == value) for value in (1, 0)] == [1.0, -1.0]
    rows = 20_000
    expected = np.mean(1 / np.arange(1, rows + 1))  # One relevant row is at each place in as many orders.
    result = ranking.mean_reciprocal_rank(np.eye(1, rows)[0], np.zeros(rows), np.zeros(rows))
    assert result == pytest.approx(expected, rel=1e-9)
    classes = np.arange(10_000)
    tracemalloc.start()
    classification.recall(classes, classes[::-1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000_000


def test_groups_are_drawn_whole_and_gaps_in_their_numbers_are_no_groups() -> None:
    labels, scores, groups = np.array([1, 0, 0, 1]), np.array([1.0, 0, 1, 0]), np.array([7, 7, 90, 90])
    drawn = ranking.mean_reciprocal_rank.on_draws(labels, Predictions(scores, groups=groups))
    assert [drawn(np.array(times, float)) for times in ([2, 2, 0, 0], [0, 0, 2, 2], [1, 1, 1, 1])] == [1.0, 0.5, 0.75]


def example(task: str, rows: int, seed: int, noise: float = 1.0) -> tuple[Any, Predictions]:
    """Labels, and noisy predictions of them; half of the predictions are rounded, for ties."""
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


CASES = [(name, task) for name, metric in METRICS.items() for task in metric.tasks]
EVERY_CASE = pytest.mark.parametrize(("name", "task"), CASES)


@EVERY_CASE
@given(st.integers(0, 1000), st.integers(1, 40))
def test_a_metric_on_a_draw_is_the_metric_of_the_drawn_rows(name: str, task: str, seed: int, rows: int) -> None:
    labels, predictions = example(task, rows, seed)
    metric = metric_named(name)
    ranked = metric.reads == "groups"
    # Units of several rows, so that draws have more rows or fewer than there are.
    together = predictions.form("groups") if ranked else np.random.default_rng([seed, 1]).integers(0, rows, rows)
    unit = np.unique(together, return_inverse=True)[1]
    drawn = np.random.default_rng(seed).integers(0, unit.max() + 1, unit.max() + 1)
    times = np.bincount(drawn, minlength=unit.max() + 1)[unit]
    chosen = predictions.take(np.repeat(np.arange(rows), times))
    copy = np.concatenate([np.arange(count) for count in times])  # A group that is drawn twice is two groups.
    chosen = replace(chosen, groups=None if chosen.groups is None else chosen.groups * (times.max() + 1) + copy)
    expected = metric.measure(np.repeat(labels, times), chosen)
    for variant in (metric,) if ranked else (metric, replace(metric, prepare=None, gaps=None, groups=0)):
        on_draw = variant.on_draws(labels, predictions)
        assert on_draw(times.astype(float)) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert np.isnan(on_draw(np.zeros(rows)))


@EVERY_CASE
@given(st.integers(0, 1000))
def test_the_order_of_rows_does_not_matter(name: str, task: str, seed: int) -> None:
    labels, predictions = example(task, 30, seed)
    shuffled = np.random.default_rng(seed).permutation(30)
    expected = metric_named(name).measure(labels, predictions)
    again = metric_named(name).measure(labels[shuffled], predictions.take(shuffled))
    assert again == pytest.approx(expected, rel=1e-9, abs=1e-12)


@EVERY_CASE
def test_a_better_model_is_better_and_nan_never_is(name: str, task: str) -> None:
    metric = metric_named(name)
    good, bad = (metric.measure(*example(task, 2000, 7, noise)) for noise in (0.2, 3.0))
    assert metric.is_better(good, bad) and not metric.is_better(bad, good)
    assert not metric.is_better(np.nan, 0.5) and not metric.is_better(0.5, np.nan) and not metric.keeps(np.nan, 0.5)
    labels, predictions = example(task, 20, 3)
    assert np.isfinite(metric.measure(labels[:1], predictions.take(np.arange(1))))
    scores = np.asarray(predictions.scores, np.float64).copy()
    scores[7] = np.nan
    broken = TASKS[task].read(scores, predictions.groups)
    assert np.isnan(metric.measure(labels, broken)) and np.isnan(metric.on_draws(labels, broken)(np.ones(20)))


@pytest.mark.parametrize("name", sorted(metrics_for("multiclass")))
def test_a_class_that_the_model_does_not_know_has_probability_0(name: str) -> None:
    draw, metric = np.random.default_rng(5), metric_named(name)
    labels, scores = draw.integers(1, 5, 60), draw.dirichlet(np.ones(4), 60)
    result = metric.measure(labels, TASKS["multiclass"].read(scores, None))
    padded = np.column_stack([scores, np.zeros(60)])
    assert result == pytest.approx(metric.measure(labels, TASKS["multiclass"].read(padded, None)), rel=1e-9)


def test_configuration_names_metrics_without_numpy() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from gatehouse.evaluation.spec import GatePolicy\n"
        "from gatehouse.metrics.tasks import BINARY\n"
        "policy = GatePolicy.model_validate({'bars': {'roc_auc': {'min': 0.7}}, 'champion': {'metric': 'rmse'}})\n"
        "print(*policy.problems(BINARY))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("champion.metric: ") and ended.stdout.rstrip().endswith("rmse")
    assert all(is_minimized(name) == (metric.better == "lower") for name, metric in METRICS.items())


def test_a_mistaken_name_is_told_the_right_one() -> None:
    assert ALIASES["auc"] == "roc_auc" and not set(ALIASES) & set(METRICS)
    for alias, name in ALIASES.items():
        with pytest.raises(ValidationError, match=rf"did you mean {name}\?"):
            TypeAdapter(MetricName).validate_python(alias.upper())
    with pytest.raises(ConfigurationError, match="'speed'"):
        metric_named("speed")
    assert TypeAdapter(MetricName).json_schema()["anyOf"][0] == {"enum": [*METRICS]}
