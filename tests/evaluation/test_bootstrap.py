"""The bootstrap: which units are drawn, that all numbers see the same draws, and what dependent rows cost."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from gatehouse.data.splitting.parts import Part
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.bootstrap import Units, interval, on_draws, percentiles
from gatehouse.evaluation.bootstrap import compared as compare
from gatehouse.evaluation.draws import Sample
from gatehouse.evaluation.evaluating import uncertainty_of
from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.report import estimate
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.evaluation.stage import EvaluateRequest, units_of
from gatehouse.metrics.arithmetic import holm
from gatehouse.metrics.catalogue import metric_named, metrics_for
from gatehouse.metrics.classification import calibration_error, calibration_error_debiased
from gatehouse.metrics.metric import Metric, all_on_draws
from gatehouse.metrics.tasks import BINARY, RANKING
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.evaluation.conftest import LENIENT, SPEC


def part(groups: Any = None) -> Part:
    """Six rows of three planes on two days."""
    decided = [datetime(2024, 1, 1, 6, tzinfo=UTC) + timedelta(hours=8 * hour) for hour in range(6)]
    table = pa.table({"plane": ["b", "a", "b", None, "a", "b"], "decided": decided})
    return Part(np.arange(6), table, np.array([0.0, 1, 0, 1, 1, 0]), groups)


@pytest.mark.parametrize(
    ("resample_by", "units"),
    [("", None), ("plane", [0, 1, 0, 2, 1, 0]), ("day", [0, 0, 0, 1, 1, 1])],
)
def test_units_are_rows_values_of_a_column_or_days(resample_by: str, units: list[int] | None) -> None:
    result = Units.of(part(), resample_by, "decided")
    assert result.name == (resample_by or "row")
    assert result.number == (len(set(units)) if units else 6)
    assert (None if result.of_row is None else result.of_row.tolist()) == units


@pytest.mark.parametrize(
    ("columns", "units"),
    [(("plane",), [0, 1, 0, 2, 1, 0]), (("plane", "decided"), None), ((), None), (("gone",), None)],
)
def test_what_a_split_keeps_together_is_a_unit(columns: tuple[str, ...], units: list[int] | None) -> None:
    result = Units.of_split(part(), columns)
    assert (result.name, result.number) == (("plane", 3) if units else ("row", 6))
    if units:
        assert [result.of_row[row] == result.of_row[0] for row in range(6)] == [unit == 0 for unit in units]  # type: ignore[index]  # They are where units are given.
    assert Units.of_split(part(np.array([0, 0, 0, 1, 1, 1])), columns).name == "group"


def test_rankings_are_drawn_by_group_and_no_unit_cuts_one() -> None:
    groups = np.array([0, 0, 0, 1, 1, 1])
    assert Units.of(part(groups), "", "decided").name == "group"
    assert Units.of(part(groups), "day", "decided").number == 2
    with pytest.raises(ConfigurationError, match="resample_by: plane: expected the same value in all rows of a group"):
        Units.of(part(groups), "plane", "decided")


def test_rows_of_a_unit_are_drawn_together_and_the_seed_decides() -> None:
    units = Units.of(part(), "plane", "")
    draws = np.array(list(units.draws(range(200), 3)))
    assert (draws[:, 0] == draws[:, 2]).all() and (draws[:, 1] == draws[:, 4]).all()
    assert (draws[:, [0, 1, 3]].sum(axis=1) == 3).all()
    assert (draws[50:] == np.array(list(units.draws(range(50, 200), 3)))).all()
    assert (draws != np.array(list(units.draws(range(200), 4)))).any()
    assert len(np.unique(draws, axis=0)) == 10, "all ways to draw three of three"


def test_rows_of_one_unit_that_are_alike_tell_less() -> None:
    draw = np.random.default_rng(5)
    labels = np.repeat(draw.integers(0, 2, 60).astype(float), 10)
    probabilities = np.repeat(draw.uniform(0.2, 0.8, 60), 10)
    units = Units("plane", 60, np.repeat(np.arange(60), 10))
    models = {"candidate": BINARY.read(probabilities, None)}
    spec = EvaluationSpec(bootstrap_samples=200)
    result, _ = uncertainty_of(metrics_for("binary"), Sample(labels, models, units), spec)
    assert (result.unit, result.units, result.samples) == ("plane", 60, 200)
    alone, _ = uncertainty_of(metrics_for("binary"), Sample(labels, models, Units("row", 600)), spec)
    wide, narrow = (entry.intervals["candidate"]["log_loss"] for entry in (result, alone))
    assert wide[1] - wide[0] > 2 * (narrow[1] - narrow[0])


def test_percentiles_of_few_units_are_those_of_a_t_interval() -> None:
    # Draws of ten units vary by nine tenths of what samples do, and samples of ten have Student's t.
    drawn = stats.norm.ppf((np.arange(100_000) + 0.5) / 100_000, scale=np.sqrt(0.9))
    expected = stats.t(9).ppf(0.95)
    assert percentiles(drawn, 0.05, 10) == pytest.approx((-expected, expected), rel=1e-3)
    assert percentiles(drawn, 0.05, 1) == percentiles(drawn, 0.05), "of one unit nothing is known"


@pytest.mark.parametrize("grouped", [False, True])
def test_intervals_hold_the_truth_about_as_often_as_they_say(grouped: bool) -> None:
    """A small version of the study in docs/decisions/intervals.md."""
    kept = []
    for seed in range(120):
        draw = np.random.default_rng(seed)
        unit = np.arange(400) // 4
        shared = draw.normal(size=100)[unit] if grouped else 0.0
        losses = draw.normal(size=400) + shared
        units = Units("unit", 100, unit) if grouped else Units("row", 400)
        means = np.array([times @ losses / times.sum() for times in units.draws(range(60), 7)])
        low, high = percentiles(means, 0.025, units.number)
        kept.append(low <= 0 <= high)
    assert 0.86 <= np.mean(kept) <= 0.99


def test_each_is_multiplied_by_what_is_left_and_none_is_below_a_smaller_one() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.6, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


def test_by_chance_at_most_a_twentieth_of_families_has_a_rejection() -> None:
    draw = np.random.default_rng(0)
    assert np.mean([holm(draw.random(20)).min() < 0.05 for _ in range(2000)]) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(
    ("split", "resample_by", "units"),
    [
        ({"strategy": "group", "columns": ["shop", "size"]}, "", ("shop and size", 30)),
        ({"strategy": "entity"}, "", ("shop", 10)),
        ({"strategy": "random"}, "", ("shop", 10)),
        ({"strategy": "time"}, "", ("shop", 10)),
        ({"strategy": "group", "columns": ["shop"]}, "size", ("size", 3)),
    ],
)
def test_units_are_what_the_project_names_or_the_split_or_entities_keep_together(
    store: ArtifactStore, split: dict[str, object], resample_by: str, units: tuple[str, int]
) -> None:
    rows = np.arange(300)
    table = pa.table({"shop": rows % 10, "size": rows % 3})
    body = {"train.parquet": canonical_json([])}
    reference = str(store.publish("splits", "sales", body, configuration=split))
    request = EvaluateRequest(
        model="m",
        split=reference,
        policy=LENIENT,
        spec=SPEC.model_copy(update={"resample_by": resample_by}),
    )
    result = units_of(request, store, Part(rows, table, rows % 2.0), {"entity_keys": ["shop"]})
    assert (result.name, result.number) == units


def rows(seed: int, off: float) -> tuple[Any, Any]:
    """Labels, and probabilities that are their chances, but for `off`."""
    draw = np.random.default_rng(seed)
    chances = draw.uniform(0.3, 0.7, 400)
    return (draw.random(400) < chances).astype(float), BINARY.read(chances + off, None)


@pytest.mark.parametrize("metric", [calibration_error, calibration_error_debiased])
@pytest.mark.parametrize("off", [0.0, 0.1])
def test_intervals_hold_the_truth_where_percentiles_hold_none(metric: Any, off: float) -> None:
    kept = percentiles = 0
    for seed in range(40):
        labels, predictions = rows(seed, off)
        drawn = on_draws(all_on_draws([metric], labels, predictions), Units("row", 400), range(60), 7)
        low, high = interval(metric, drawn, 400, labels, predictions)
        assert 0 <= low <= high <= 1
        kept += low <= off + 1e-9 and off <= high
        percentiles += np.quantile(drawn[:, 0], 0.025) <= off
    assert kept >= 35
    assert off or percentiles == 0, "draws are moved by chance twice"


def test_the_interval_of_the_debiased_error_holds_it_and_that_of_the_plain_one_is_not_shown() -> None:
    out = 0
    for seed in range(20):
        labels, predictions = rows(seed, 0.0)
        drawn = on_draws(all_on_draws([calibration_error], labels, predictions), Units("row", 400), range(60), 7)
        test = interval(calibration_error, drawn, 400, labels, predictions)
        low, high = interval(calibration_error_debiased, drawn, 400, labels, predictions)
        value = calibration_error_debiased.measure(labels, predictions)
        assert low - 1e-12 <= value <= high + 1e-12
        out += not test[0] <= value <= test[1]
    assert out, "the test alone does not hold it"
    assert estimate("calibration_error", 0.0539, (0.0, 0.0083)) == ("0.0539", "n", "")
    assert estimate("calibration_error_debiased", 0.0, (0.0, 0.0083)) == ("0.0000", "n", "0.0000 to 0.0083")


def test_gaps_sum_to_the_error_and_follow_it_on_a_draw() -> None:
    labels, predictions = rows(1, 0.05)
    value, *gaps = all_on_draws([calibration_error], labels, predictions)(np.ones(400))
    assert len(gaps) == calibration_error.groups
    assert value == pytest.approx(np.abs(gaps).sum()) == calibration_error.measure(labels, predictions)


ROWS = 800


def scores(noise: float, seed: int = 0) -> tuple[Any, Any]:
    """Labels, and probabilities that are the truth but for some noise."""
    draw = np.random.default_rng(seed)
    logit = draw.normal(size=ROWS)
    labels = (draw.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return labels, 1 / (1 + np.exp(-(logit + noise * np.random.default_rng(seed + 1).normal(size=ROWS))))


def compared(labels: Any, candidate: Any, champion: Any, metric: str = "log_loss", **how: Any) -> Comparison:
    """The comparison of two models' probabilities; the rule is that of a policy that names nothing."""
    models = BINARY.read(candidate, None), BINARY.read(champion, None)
    return resampled(metric_named(metric), labels, models, Units("row", len(labels)), **how)


def resampled(
    metric: Metric, labels: Any, models: Any, units: Units, confidence: float = 0.95, samples: int = 50, seed: int = 7
) -> Comparison:
    """The comparison of two models' predictions on draws of units."""
    measured = [all_on_draws([metric], labels, model) for model in models]
    drawn = [on_draws(measure, units, range(samples), seed)[:, 0] for measure in measured]
    values = [metric.measure(labels, model) for model in models]
    return compare(metric, values[0], values[1], (drawn[0], drawn[1]), confidence)


@pytest.mark.parametrize("metric", metrics_for("binary"))
def test_worse_is_positive_in_every_metric(metric: str) -> None:
    labels, good = scores(0.1)
    _, bad = scores(3.0)
    worse, better = (compared(labels, *models, metric, samples=100) for models in ((bad, good), (good, bad)))
    assert worse.best_bound <= worse.worse_by <= worse.worst_bound
    assert better.worst_bound < 0 < worse.best_bound
    assert worse.worse_by == -better.worse_by == metric_named(metric).worse_by(worse.candidate, worse.champion)


class EachDraw(np.random.Generator):
    """Gives each draw a generator of its own, as `Units.draws` does."""

    number = 0

    def integers(self, *arguments: Any, **more: Any) -> Any:
        self.number += 1
        return np.random.default_rng([7, self.number - 1]).integers(*arguments, **more)


@pytest.mark.parametrize("metric", ["log_loss", "roc_auc"])
def test_the_draws_are_those_of_scipy(metric: str) -> None:
    labels, good = scores(0.1)
    _, bad = scores(1.0)
    measured = metric_named(metric)

    def worse_by(labels: Any, candidate: Any, champion: Any) -> float:
        return measured.worse_by(measured(labels, candidate), measured(labels, champion))

    how = {"paired": True, "vectorized": False, "n_resamples": 50, "method": "percentile", "batch": 1}
    drawn = stats.bootstrap((labels, good, bad), worse_by, confidence_level=0.9, rng=EachDraw(np.random.PCG64()), **how)
    result = compared(labels, good, bad, metric)
    assert (result.best_bound, result.worst_bound) == pytest.approx(
        percentiles(drawn.bootstrap_distribution, 0.05), rel=1e-9
    )


def test_the_bound_covers_the_truth_as_often_as_it_says() -> None:
    # Two models of the same quality: the one-sided 90 % bound lies below zero in about a tenth of all test sets.
    missed = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, 300).astype(np.int8)
        first, other = (np.clip(0.5 + 0.1 * draw.normal(size=300), 0.01, 0.99) for _ in range(2))
        missed += compared(labels, first, other, confidence=0.9, samples=100).worst_bound < 0
    assert 8 <= missed <= 36


def test_of_rankings_whole_groups_are_drawn() -> None:
    # In every group of two one model is right and the other wrong: only drawing the rows alone would vary that.
    labels, groups = np.tile([1, 0], 50), np.repeat(np.arange(50), 2)
    right, wrong = (RANKING.read(scores, groups) for scores in (labels * 1.0, 1.0 - labels))
    result = resampled(metric_named("precision_at_1"), labels, (right, wrong), Units("group", 50, groups))
    assert (result.worse_by, result.worst_bound, result.best_bound) == (-1.0, -1.0, -1.0)
