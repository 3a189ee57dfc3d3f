"""An earlier evaluation under another policy: what it holds gives the same answers, what it lacks is told."""

from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import Bar, ChampionRule, CostBounds, GatePolicy, RegressionRule, Terms
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.evaluation.conftest import LENIENT, Bench

STRICT = GatePolicy(
    bars={"roc_auc": Bar(min=0.6)},
    leakage_alarm={"roc_auc": 0.65},
    slices={"roc_auc": 0.99},
    champion=ChampionRule(metric="brier", tolerance=0.0),
    better_than_guessing=None,
    rules={"bar": Terms(severity="warn")},
    warnings="refuse",
    regressions=RegressionRule(metrics=("roc_auc",), slices=False),
)


@pytest.mark.parametrize(
    "policy", [LENIENT, STRICT, GatePolicy(regressions=RegressionRule()), GatePolicy(least_rarer_rows=1501)]
)
def test_it_says_what_an_evaluation_under_that_policy_says(judged_bench: Bench, policy: GatePolicy) -> None:
    bad, good = judged_bench.models["bad"], judged_bench.models["good"]
    before = judged_bench.evaluate(bad, champion=good)
    anew = judged_bench.evaluate(bad, champion=good, policy=policy)
    result = verdict_by(judged_bench.store, before.evaluation, policy)
    assert (result.verdict, result.broken, result.not_measured) == (anew.verdict, anew.reasons, ())
    assert result.warnings == tuple(text for text in anew.warnings if not text.startswith("rules."))


@pytest.fixture
def recorded(judged_bench: Bench) -> Any:
    """Publishes an evaluation with some of its JSON changed; gives its store and reference."""
    result = judged_bench.evaluate(judged_bench.models["good"], champion=judged_bench.models["bad"])
    kept = judged_bench.store
    manifest = kept.manifest(result.evaluation)

    def publish(change: Any) -> tuple[ArtifactStore, str]:
        files = {file.path[:-5]: kept.read_json(result.evaluation, file.path) for file in manifest.files}
        change(files)
        reference = kept.publish(
            "evaluations",
            "changed",
            {f"{name}.json": canonical_json(body) for name, body in files.items()},
            derived_from=manifest.derived_from,
            configuration=manifest.configuration,
            details=manifest.details,
        )
        return kept, str(reference)

    return publish


def test_what_it_does_not_hold_was_not_measured_then(recorded: Any) -> None:
    def forget(files: Any) -> None:
        for values in files["metrics"].values():
            del values["brier"]
        files["verdict"] |= {"comparisons": {}, "comparison": None}

    policy = LENIENT.model_copy(
        update={
            "bars": {"brier": Bar(max=1.0)},
            "must_beat_baseline": ("brier",),
            "slices": {"brier": 1.0},
            "regressions": RegressionRule(metrics=("roc_auc",)),
            "cost": CostBounds(latency_ms=1e9, memory_mb=1.0),
        }
    )
    result = verdict_by(*recorded(forget), policy)
    assert (result.verdict, result.broken) == ("not known", ())
    names = ("bar brier", "baseline brier", "champion log_loss", "regressions", "slices brier", "memory")
    assert result.not_measured == names
    alarmed = policy.model_copy(update={"leakage_alarm": {"roc_auc": 0.501}})
    assert verdict_by(*recorded(forget), alarmed).verdict == "refused", "one rule that was measured is enough"


def test_latency_is_read_where_the_evaluation_left_it(judged_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    good = judged_bench.models["good"]
    evaluation = judged_bench.evaluate(good).evaluation
    for most, verdict in ((1e9, "pass"), (1e-9, "refused")):
        policy = LENIENT.model_copy(update={"cost": CostBounds(latency_ms=most)})
        result = verdict_by(judged_bench.store, evaluation, policy)
        assert (result.verdict, result.not_measured) == (verdict, ())
    monkeypatch.setattr(ArtifactStore, "measurements", lambda *_: [])
    result = verdict_by(judged_bench.store, evaluation, policy)
    assert (result.verdict, result.not_measured) == ("not known", ("latency",))


@pytest.mark.parametrize("policy", [{"champion": {"metric": "brier", "tolerance": 1.0}}, {"better_than_guessing": 0.9}])
def test_guessing_in_another_metric_or_confidence_was_not_measured_then(recorded: Any, policy: Any) -> None:
    requested = GatePolicy.model_validate({"must_beat_baseline": [], "leakage_alarm": {}, "slices": {}} | policy)
    result = verdict_by(*recorded(lambda files: None), requested)
    assert (result.verdict, result.not_measured) == ("not known", ("guessing",))


def test_a_policy_of_another_task_is_refused(recorded: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"does not fit .*found rmse"):
        verdict_by(*recorded(lambda files: None), LENIENT.model_copy(update={"bars": {"rmse": Bar(max=1.0)}}))
