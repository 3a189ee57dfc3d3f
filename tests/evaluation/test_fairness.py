"""Fairness: the measures against a naive reference, their intervals, and what small groups and nulls are."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import beta

from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.draws import Sample
from gatehouse.evaluation.fairness import fairness_of
from gatehouse.evaluation.gate import Evidence, Rule, applied_rules, verdict_of
from gatehouse.evaluation.group_measures import Fairness, Group, GroupMeasureName, group_measures_of
from gatehouse.evaluation.report import page
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.metrics.classification import calibration_error_debiased
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.metric import Predictions
from gatehouse.metrics.tasks import TASKS
from gatehouse.registry.policy_trial import verdict_by
from tests.evaluation.conftest import LENIENT, SPEC, Bench
from tests.evaluation.test_gate import MODEL

ROWS = 3_000
RATES = ("selection_rate", "true_positive_rate", "false_positive_rate")
FAIR = EvaluationSpec(protected=("carrier",), min_slice_rows=100, bootstrap_samples=60)


def _groups(seed: int = 1) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.choice(["a", "b", "c"], ROWS, p=[0.6, 0.3, 0.1]).astype(object)


def _binary(seed: int = 1) -> tuple[np.ndarray, Predictions]:
    draw, groups = np.random.default_rng(seed), _groups(seed)
    probabilities = np.clip(draw.beta(2, 3, ROWS) + 0.1 * (groups == "b"), 0, 1)
    labels = (draw.random(ROWS) < probabilities).astype(float)
    return labels, Predictions(probabilities, probabilities, probabilities >= 0.37)


def _measured(
    labels: np.ndarray, read: Predictions, groups: Any, task: str, spec: EvaluationSpec = FAIR, units: Any = None
) -> Fairness:
    table = pa.table({"carrier": pa.array(groups)})
    sample = Sample(labels, {"candidate": read}, units or Units("row", len(labels)))
    return fairness_of(table, sample, spec, TASKS[task])[0]


def _values(fairness: Fairness) -> dict[str, float]:
    return {name: value for name, (value, _, _) in fairness.measures["candidate"].items()}


def test_measures_of_two_classes_are_those_of_fairlearn_at_the_models_threshold() -> None:
    (labels, read), groups = _binary(), _groups()
    chosen, alarms, hits = [], [], []
    assert read.classes is not None and read.probabilities is not None
    for name in "abc":
        rows = groups == name
        chosen.append(np.mean(read.classes[rows]))
        hits.append(np.mean(read.classes[rows & (labels == 1)]))
        alarms.append(np.mean(read.classes[rows & (labels == 0)]))
    errors = [calibration_error_debiased(labels[groups == name], read.probabilities[groups == name]) for name in "abc"]
    expected = {
        "demographic_parity_difference": max(chosen) - min(chosen),
        "demographic_parity_ratio": min(chosen) / max(chosen),
        "equal_opportunity_difference": max(hits) - min(hits),
        "equalized_odds_difference": max(max(hits) - min(hits), max(alarms) - min(alarms)),
        "group_calibration_error": max(errors),
    }
    assert _values(_measured(labels, read, groups, "binary")) == pytest.approx(expected)


def test_of_several_classes_the_worst_against_the_rest_counts() -> None:
    draw, groups = np.random.default_rng(3), _groups()
    labels, predicted = (draw.integers(0, 4, ROWS).astype(float) for _ in range(2))
    predicted[(groups == "b") & (labels == 2)] = 2
    scores = np.eye(4)[predicted.astype(int)]
    result = _values(_measured(labels, Predictions(scores, scores, predicted), groups, "multiclass"))
    rates = {
        number: [np.mean(predicted[(groups == name) & (labels == number)] == number) for name in "abc"]
        for number in range(4)
    }
    assert result["equal_opportunity_difference"] == pytest.approx(
        max(max(entry) - min(entry) for entry in rates.values())
    )
    shares = [[np.mean(predicted[groups == name] == number) for name in "abc"] for number in range(4)]
    assert result["demographic_parity_ratio"] == pytest.approx(min(min(entry) / max(entry) for entry in shares))
    assert set(result) == set(group_measures_of("multiclass")) and "group_calibration_error" not in result


def test_of_numbers_means_of_predictions_and_errors_are_compared() -> None:
    draw, groups = np.random.default_rng(4), _groups()
    labels, scores = draw.normal(size=ROWS), draw.normal(size=ROWS) + 0.5 * (groups == "c")
    means = [np.mean(scores[groups == name]) for name in "abc"]
    errors = [np.mean((scores - labels)[groups == name]) for name in "abc"]
    expected = {
        "mean_error_difference": max(errors) - min(errors),
        "mean_prediction_difference": max(means) - min(means),
    }
    assert _values(_measured(labels, Predictions(scores), groups, "regression")) == pytest.approx(expected)


def test_a_null_is_a_group_and_small_ones_are_shown_and_do_not_count() -> None:
    (labels, read), groups = _binary(), _groups()
    groups[:200] = None
    groups[200:250] = "tiny"
    result = _measured(labels, read, groups, "binary")
    assert {group.name: group.lacking for group in result.groups} == {
        "carrier=a": "",
        "carrier=b": "",
        "carrier=c": "",
        "carrier=(null)": "",
        "carrier=tiny": "50 rows, fewer than 100",
    }
    assert "selection_rate" in result.groups[-1].rates["candidate"]
    kept = groups != "tiny"
    without = _measured(labels[kept], read.take(np.flatnonzero(kept)), groups[kept], "binary")
    assert _values(result) == pytest.approx(_values(without))
    assert str(result).endswith(", 1 groups cannot be judged")


def test_groups_of_few_units_or_of_one_label_cannot_be_judged() -> None:
    (labels, read), groups = _binary(), _groups()
    labels[groups == "c"] = 1.0
    few = Units("day", 10 + ROWS, np.where(groups == "b", np.arange(ROWS) % 10, 10 + np.arange(ROWS)))
    result = _measured(labels, read, groups, "binary", units=few)
    reported = {group.name[-1]: group.lacking for group in result.groups}
    assert (
        reported["a"] == ""
        and reported["b"] == "rows of 10 days, fewer than 20"
        and "0 rows with label 0" in reported["c"]
    )
    assert result.measures == {"candidate": {}}


def _of_two(positive: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Groups, labels and answers that are mostly right: 4,000 rows of `a`, and some of `b`, the first ones positive."""
    draw = np.random.default_rng(2)
    labels = np.concatenate([draw.random(4_000) < 0.3, np.arange(rows) < positive])
    predicted = np.where(draw.random(4_000 + rows) < 0.97, labels, ~labels)
    return np.array(["a"] * 4_000 + ["b"] * rows), labels.astype(float), predicted


@pytest.mark.parametrize("missed", [False, True])
def test_a_rate_of_one_row_is_not_known_and_decides_nothing(missed: bool) -> None:
    groups, labels, predicted = _of_two(1)
    predicted[4_000] = not missed
    result = _measured(labels, Predictions(predicted * 0.9, predicted * 0.9, predicted), groups, "binary")
    assert [(group.lacking, group.unknown) for group in result.groups] == [
        ("", ()),
        ("the true positive rate, of fewer than 20 rows (1)", ("true_positive_rate",)),
    ]
    assert not result.lacking and {*result.groups[1].rates["candidate"]} & {*RATES} == {*RATES[::2]}
    rule, odds = _judged({"equal_opportunity_difference": 0.1, "equalized_odds_difference": 0.1}, result)
    assert verdict_of((rule,)) == verdict_of((odds,)) == "inconclusive"
    for group in (rule, odds):
        assert group.observed.endswith("; carrier=b lacks the true positive rate, of fewer than 20 rows (1)")
    assert str(result).endswith("not measured, carrier=b lacks the true positive rate, of fewer than 20 rows (1)")
    (chosen,) = _judged({"demographic_parity_difference": 0.5}, result)
    assert chosen.holds, "that divides by all rows"


@pytest.mark.parametrize("predicted", [0, 1])
def test_a_rate_of_0_or_1_has_the_interval_of_jeffreys(predicted: int) -> None:
    groups, labels, _ = _of_two(150)
    read = Predictions(np.full(4_600, 0.5), np.full(4_600, 0.5), np.full(4_600, predicted))
    result = _measured(labels, read, groups, "binary", FAIR.model_copy(update={"bootstrap_samples": 500}))
    for name, rows in zip(RATES, (600, 150, 450), strict=True):
        value, low, high = result.groups[1].rates["candidate"][name]
        width = beta(0.5, rows + 0.5).ppf(0.975)
        expected = (1, 1 - width, 1) if predicted else (0, 0, width)
        assert (value, low, high) == pytest.approx(expected, abs=0.3 * width)
    for name, (value, low, high) in result.measures["candidate"].items():
        assert low <= value <= high and high - low > 0.002, name
    assert ("demographic_parity_ratio" in result.measures["candidate"]) == bool(predicted), "0 of 0 has no value"


@pytest.mark.parametrize(("share", "rows", "verdict"), [(0.002, 30, "inconclusive"), (0.5, 300, "refused")])
def test_a_group_without_a_selected_row_is_refused_only_where_others_say_so(
    share: float, rows: int, verdict: str
) -> None:
    groups, labels, predicted = _of_two(rows // 2, rows)
    predicted, spec = np.arange(4_000 + rows) < share * 4_000, FAIR.model_copy(update={"min_slice_rows": 20})
    labels[4_000:] = np.arange(rows) % 2
    result = _measured(labels, Predictions(predicted * 0.9, predicted * 0.9, predicted), groups, "binary", spec)
    assert not result.lacking and result.measures["candidate"]["demographic_parity_ratio"][0] == 0
    assert verdict_of(_judged({"demographic_parity_ratio": 0.8}, result)) == verdict


def test_equal_groups_are_rarely_shown_to_differ_however_many_they_are() -> None:
    shown, alike = 0, EvaluationSpec(protected=("carrier",), min_slice_rows=20, bootstrap_samples=60)
    for seed in range(40):
        draw = np.random.default_rng(seed)
        labels, predicted = (draw.random(1_500) < 0.5 for _ in range(2))
        read, groups = Predictions(predicted.astype(float), None, predicted.astype(int)), draw.integers(0, 10, 1_500)
        result = _measured(labels.astype(float), read, groups, "multiclass", alike).measures["candidate"]
        shown += result["equal_opportunity_difference"][1] > 0
    assert shown <= 8


def _judged(bounds: dict[GroupMeasureName, float], fairness: Fairness | None) -> tuple[Rule, ...]:
    policy = GatePolicy(must_beat_baseline=(), leakage_alarm={}, slices={}, fairness={"carrier": bounds})
    measured = {"carrier": fairness} if fairness else {}
    evidence = Evidence(MODEL, {}, {}, None, {}, False, fairness=measured)
    return applied_rules(policy.resolved(profile_of(TASKS["binary"])), evidence)


ALIKE = tuple(Group(f"carrier={name}", 900, "", {}) for name in "ab")
TINY = Group("carrier=t", 9, "9 rows, fewer than 100", {})
PARTLY = Group("carrier=p", 900, "the true positive rate, of fewer than 20 rows (1)", {}, ("true_positive_rate",))


@pytest.mark.parametrize(
    ("groups", "interval", "bound", "verdict"),
    [
        (ALIKE, (0.05, 0.02, 0.08), 0.1, "pass"),
        (ALIKE, (0.05, 0.02, 0.12), 0.1, "inconclusive"),
        (ALIKE, (0.12, 0.08, 0.15), 0.1, "inconclusive"),
        (ALIKE, (0.20, 0.15, 0.25), 0.1, "refused"),
        ((*ALIKE, TINY), (0.05, 0.02, 0.08), 0.1, "inconclusive"),
        ((*ALIKE, TINY), (0.20, 0.15, 0.25), 0.1, "refused"),
        ((ALIKE[0], TINY), None, 0.1, "inconclusive"),
        ((*ALIKE, PARTLY), (0.05, 0.02, 0.08), 0.1, "inconclusive"),
        ((*ALIKE, PARTLY), (0.20, 0.15, 0.25), 0.1, "refused"),
        ((ALIKE[0], PARTLY), None, 0.1, "inconclusive"),
        (ALIKE, None, 0.1, "refused"),
        (ALIKE, (math.nan, math.nan, math.nan), 0.1, "refused"),
    ],
)
def test_a_bound_is_kept_where_the_whole_interval_keeps_it(
    groups: tuple[Group, ...], interval: Any, bound: float, verdict: str
) -> None:
    measures = {} if interval is None else {"equal_opportunity_difference": interval}
    result = Fairness("carrier", groups, {"candidate": measures})
    rules = _judged({"equal_opportunity_difference": bound}, result)
    assert verdict_of(rules) == verdict
    assert [rule.name for rule in rules] == [
        "fairness carrier equal_opportunity_difference",
        *(f"fairness {entry.name}" for entry in result.lacking),
    ]


def test_an_evaluation_holds_it_and_the_page_the_summary_and_another_policy_read_it(judged_bench: Bench) -> None:
    spec = SPEC.model_copy(update={"protected": ("carrier", "origin")})
    bounds: dict[str, Any] = {"carrier": {"equal_opportunity_difference": 0.01}}
    policy = GatePolicy(**{**dict(LENIENT), "fairness": bounds})
    result = judged_bench.evaluate(judged_bench.models["good"], judged_bench.models["bad"], policy, spec)
    assert result.verdict == "refused"
    assert result.reasons[0].startswith("fairness carrier equal_opportunity_difference: expected at most 0.01")
    assert "fairness origin: the column is protected, and no rule of the policy looks" in result.warnings
    assert "fairness by carrier: equal opportunity difference 0." in result.summary
    html = page(judged_bench.store, result.evaluation)
    assert "by carrier, of 3 groups" in html and "True positive rate of the candidate by origin" in html
    lenient = verdict_by(judged_bench.store, result.evaluation, LENIENT)
    assert lenient.verdict == "pass"
    assert verdict_by(judged_bench.store, result.evaluation, policy).broken == result.reasons
    plain = judged_bench.evaluate(judged_bench.models["good"], judged_bench.models["bad"])
    assert verdict_by(judged_bench.store, plain.evaluation, policy).not_measured == (
        "fairness carrier equal_opportunity_difference",
    )
