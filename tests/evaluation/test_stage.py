"""Evaluation end to end on real models: verdicts, reasons, what is published, and what must never happen."""

import json

import numpy as np
import pytest

from gatehouse.data.splitting.parts import read_part
from gatehouse.evaluation.report import page
from gatehouse.evaluation.result import ScoringError
from gatehouse.evaluation.spec import CostBounds
from gatehouse.evaluation.stage import SelfComparisonError, evaluate
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.identity import identity_of
from gatehouse.training.predictor import Predictor
from tests.evaluation.conftest import LENIENT, SPEC, Bench
from tests.training.synthetic import CATEGORICAL, NUMERIC


def test_champion_and_candidate_each_have_their_own_numbers(judged_bench: Bench) -> None:
    good, bad = judged_bench.models["good"], judged_bench.models["bad"]
    result = judged_bench.evaluate(bad, champion=good)
    part = read_part(judged_bench.store, judged_bench.training_set, judged_bench.split, "test", BINARY)
    for model, entry in ((bad, result.metrics), (good, result.champion_metrics)):
        predicted = Predictor.load(judged_bench.store, model).predict(part.table)
        read = BINARY.read(predicted, None)
        assert entry == {name: metric.measure(part.labels, read) for name, metric in metrics_for("binary").items()}
    swapped = judged_bench.evaluate(good, champion=bad)
    assert (swapped.metrics, swapped.champion_metrics) == (result.champion_metrics, result.metrics)
    assert result.metrics != result.champion_metrics
    html = page(judged_bench.store, result.evaluation)
    assert result.reasons[0].replace("'", "&#39;") in html and good in html and "carrier=UA" in html


def test_a_candidate_is_never_compared_with_itself(judged_bench: Bench) -> None:
    good = judged_bench.models["good"]
    with pytest.raises(SelfComparisonError, match="is both candidate and champion"):
        judged_bench.evaluate(good, champion=good)
    with pytest.raises(SelfComparisonError):
        judged_bench.evaluate(good, champion=judged_bench.store.address_of(good))


def test_the_best_champion_so_far_is_compared_too(judged_bench: Bench) -> None:
    store, good, bad = judged_bench.store, judged_bench.models["good"], judged_bench.models["bad"]
    request = judged_bench.request(bad, judged_bench.models["other"]).model_copy(update={"floor": good})
    result = evaluate(request, store)
    assert any(
        reason.startswith("floor log_loss: expected not worse than the best champion") for reason in result.reasons
    )
    verdict = store.read_json(result.evaluation, "verdict.json")
    alone = store.read_json(judged_bench.evaluate(bad, champion=good).evaluation, "verdict.json")
    assert verdict["floor"] == alone["comparison"] and alone["floor"] is None
    compared = [*verdict["comparisons"].values(), verdict["floor"], verdict["guessing"]]
    assert {entry["units"] for entry in compared} == {1500}
    assert store.manifest(result.evaluation).derived_from["floor"] == good
    assert result.reasons[0] in verdict_by(store, result.evaluation, LENIENT).broken
    assert "floor log_loss" in page(store, result.evaluation)


def test_a_candidate_that_equals_the_champion_in_everything_replaces_nothing(judged_bench: Bench) -> None:
    good = judged_bench.models["good"]
    again = judged_bench.model(name="again")
    refused = judged_bench.evaluate(again, champion=good)
    assert refused.verdict == "refused" and "equal in every metric on every draw" in refused.reasons[0]
    assert judged_bench.evaluate(good, champion=judged_bench.models["other"]).verdict != "refused"


def test_what_is_published(judged_bench: Bench) -> None:
    store, good, bad = judged_bench.store, judged_bench.models["good"], judged_bench.models["bad"]
    result = judged_bench.evaluate(bad, champion=good)
    manifest = store.manifest(result.evaluation)
    assert (manifest.kind, manifest.name) == ("evaluations", "delays")
    assert set(manifest.derived_from) == {"model", "champion", "training_set", "split", "baseline"}
    rate = pytest.approx(0.4, abs=0.2)
    assert manifest.details == {
        "verdict": "refused",
        "task": "binary",
        "rows": 1500,
        "level": {"title": "label rate", "is_share": True, "value": rate},
    }
    assert manifest.configuration == {"spec": identity_of(SPEC), "policy": identity_of(LENIENT)}
    assert store.read_json(result.evaluation, "metrics.json") == {
        "candidate": result.metrics,
        "champion": result.champion_metrics,
        "baseline": result.baseline_metrics,
        "constant": store.read_json(result.evaluation, "metrics.json")["constant"],
    }
    verdict = store.read_json(result.evaluation, "verdict.json")
    assert verdict["verdict"] == "refused"
    assert [rule["name"] for rule in verdict["rules"] if not rule["holds"]] == ["champion log_loss"]
    assert set(store.read_json(result.evaluation, "curves.json")) == {"candidate", "champion", "baseline"}
    assert sum(entry["rows"] for entry in store.read_json(result.evaluation, "slices.json")) == 1500
    assert store.verify(result.evaluation) == 6
    importance = {
        entry["feature"]: entry["interval"] for entry in store.read_json(result.evaluation, "importance.json")
    }
    assert set(importance) == {*NUMERIC, *CATEGORICAL} and all(low <= high for low, high in importance.values())
    shown = page(store, result.evaluation).replace("<wbr/>", "").partition("Importance</h2>")[2]
    assert all(f">{name}<" in shown for name in importance)
    intervals = store.read_json(result.evaluation, "uncertainty.json")["intervals"]
    for role, values in store.read_json(result.evaluation, "metrics.json").items():
        assert set(intervals[role]) == set(values)
        low, high = intervals[role]["log_loss"]
        assert low < values["log_loss"] < high or role == "constant"
    assert set(verdict["comparisons"]) == set(result.metrics)
    assert verdict["comparisons"]["log_loss"].items() >= verdict["comparison"].items()


@pytest.mark.parametrize(("refit", "parts"), [(0, ("train",)), (2, ("train", "validation"))])
def test_the_baseline_learns_from_the_rows_that_the_candidate_learned_from(
    judged_bench: Bench, refit: int, parts: tuple[str, ...]
) -> None:
    bench, data = judged_bench, {"training_set": judged_bench.training_set, "split": judged_bench.split}
    result = bench.evaluate(bench.model(steps=5, refit=refit))
    baseline = bench.store.manifest(result.evaluation).derived_from["baseline"]
    rows = [read_part(bench.store, **data, name=part, task=BINARY).labels for part in parts]
    rate = float(np.concatenate(rows).mean())
    (constant,) = bench.store.read_json(baseline, "constant.json")["coefficients"]
    assert constant[-1] == pytest.approx(np.log(rate / (1 - rate)), abs=1e-4)


def test_what_it_costs_is_recorded_beside_and_not_in_the_evaluation(bench: Bench) -> None:
    model = bench.model(steps=1)
    result = bench.evaluate(model)
    (key,) = bench.store.objects.list(f"measurements/{model}")
    reported = json.loads(bench.store.objects.get_bytes(key))
    latency = reported["latency"]
    for times in (latency["single_row_ms"], latency["batch"]["ms"]):
        assert 0 < times["p50"] <= times["p95"] <= times["p99"]
    assert latency["batch"]["rows"] == 200
    assert latency["rows_per_second"] == pytest.approx(200_000 / latency["batch"]["ms"]["p50"], abs=1)
    assert " cores" in latency["hardware"]
    assert reported["size_bytes"] == sum(entry.bytes for entry in bench.store.manifest(model).files)
    assert "memory_mb" not in reported and "cost" not in bench.store.read_json(result.evaluation, "verdict.json")


def test_bounds_on_cost_are_rules_and_the_numbers_that_were_judged_are_kept(bench: Bench) -> None:
    bounds = CostBounds(latency_ms=1e6, size_mb=1e-6, memory_mb=1.0)
    policy = LENIENT.model_copy(update={"cost": bounds, "better_than_guessing": None})
    result = bench.evaluate(bench.model(steps=1), policy=policy)
    kept = bench.store.read_json(result.evaluation, "verdict.json")["cost"]
    measured = json.loads(bench.store.objects.get_bytes(kept["measurement"]))
    assert kept["memory_mb"] == measured["memory_mb"] > 50
    assert kept["latency_ms"] == measured["latency"]["single_row_ms"]["p95"]
    assert [reason.split(":")[0] for reason in result.reasons] == ["model size", "memory"]
    assert f"found {kept['memory_mb']:.4g} MB on {kept['hardware']}" in result.reasons[1]


def test_scores_that_are_not_numbers_are_an_error(bench: Bench) -> None:
    with pytest.raises(
        ScoringError,
        match=r"The candidate models/.* a number from 0 to 1 .* 200 others, .* in row 1303",
    ):
        bench.evaluate(bench.model(steps=0, broken=True))
