"""Rules on a candidate's data: its age, the drift of features, and its lineage; what was not measured keeps none."""

import math
from dataclasses import replace
from typing import Any

import pytest

from gatehouse.evaluation.evidence import origins_of
from gatehouse.evaluation.gate import Evidence, Origins, applied_rules
from gatehouse.evaluation.report import page
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.evaluation.stage import evaluate
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY
from gatehouse.registry.policy_trial import verdict_by
from gatehouse.store.canonical import canonical_json
from gatehouse.store.store import ArtifactStore
from tests.evaluation.conftest import LENIENT, Bench
from tests.evaluation.test_gate import MODEL

ORIGINS = Origins(age_days=30.0, psi={"wind": 0.1, "distance": 0.2})


def _outcomes(fields: dict[str, Any], origins: Origins | None) -> list[tuple[str, bool, bool]]:
    """Name, whether it holds and whether it cannot be told, of each rule."""
    policy = GatePolicy.model_validate({"must_beat_baseline": [], "leakage_alarm": {}, "slices": {}, **fields})
    rules = applied_rules(
        policy.resolved(profile_of(BINARY)), Evidence(MODEL, {}, {}, None, {}, False, origins=origins)
    )
    return [(rule.name, rule.holds, rule.inconclusive) for rule in rules]


@pytest.mark.parametrize(
    ("fields", "origins", "rules"),
    [
        ({}, ORIGINS, []),
        ({"max_training_age": "P30D"}, ORIGINS, [("training age", True, False)]),
        ({"max_training_age": "P29D"}, ORIGINS, [("training age", False, False)]),
        ({"max_training_age": "P30D"}, replace(ORIGINS, age_days=None), [("training age", False, False)]),
        ({"max_training_age": "P30D"}, None, [("training age", False, False)]),
        ({"max_psi": 0.2}, ORIGINS, [("drift", True, False)]),
        ({"max_psi": 0.15}, ORIGINS, [("drift distance", False, False)]),
        ({"max_psi": 0.2}, replace(ORIGINS, psi={"wind": 0.1, "rain": None}), [("drift rain", False, True)]),
        ({"max_psi": 0.2}, replace(ORIGINS, psi={}), [("drift", False, False)]),
        ({"max_psi": 0.2}, replace(ORIGINS, psi={"wind": math.nan}), [("drift wind", False, False)]),
        ({"max_psi": 0.2}, None, [("drift", False, False)]),
        ({"complete_lineage": True}, ORIGINS, [("lineage", True, False)]),
        ({"complete_lineage": True}, replace(ORIGINS, missing=("no snapshots",)), [("lineage", False, False)]),
        ({"complete_lineage": True}, None, [("lineage", False, False)]),
    ],
)
def test_each_rule_holds_where_it_was_measured_and_kept(
    fields: dict[str, Any], origins: Origins | None, rules: list[tuple[str, bool, bool]]
) -> None:
    assert _outcomes(fields, origins) == rules


def _checks(bench: Bench, split: str = "", **parts: Any) -> str:
    """Checks of the bench's split: parts that end on these days, and one feature that moved."""
    last = {"train": "2024-01-01 12:00", "validation": "2024-02-01 00:00", "test": "2024-03-01 00:00"} | parts
    reported = {"parts": {name: {"last": day} if day else {} for name, day in last.items()}, "psi": {"wind": 0.3}}
    return str(
        bench.store.publish(
            "split-checks",
            "x",
            {"checks.json": canonical_json(reported)},
            derived_from={"split": split or bench.split, "training_set": bench.training_set},
            details={"verdict": "pass", "warnings": []},
        )
    )


def _origins(bench: Bench, model: str, checks: str) -> Origins:
    return origins_of(bench.store, model, bench.training_set, bench.split, checks)


def test_age_and_drift_are_read_off_the_checks_of_the_split(judged_bench: Bench) -> None:
    result = _origins(judged_bench, judged_bench.models["good"], _checks(judged_bench))
    assert (result.age_days, result.psi, result.lacking) == (59.5, {"wind": 0.3}, "")
    assert result.missing == ("no snapshots", "no config", "no feature-tables")
    assert _origins(judged_bench, judged_bench.models["good"], _checks(judged_bench, test="")).age_days is None


def test_a_refit_is_as_old_as_the_newest_row_that_it_learned_from(judged_bench: Bench) -> None:
    inputs = {"training_set": judged_bench.training_set, "split": judged_bench.split}
    reported = {"stopping": {"refit": 3}}
    refit = str(judged_bench.store.publish("models", "x", {"a": "b"}, derived_from=inputs, configuration=reported))
    assert _origins(judged_bench, refit, _checks(judged_bench)).age_days == 29.0
    assert _origins(judged_bench, refit, _checks(judged_bench, validation="")).age_days is None


def test_what_is_not_of_this_split_is_not_known(judged_bench: Bench) -> None:
    store, good = judged_bench.store, judged_bench.models["good"]
    assert "was given no checks" in _origins(judged_bench, good, "").lacking
    other = str(store.publish("splits", "flights", {"index": "other rows"}))
    assert f"checked {other}" in _origins(judged_bench, good, _checks(judged_bench, other)).lacking
    inputs = {"training_set": judged_bench.training_set, "split": other}
    elsewhere = str(store.publish("models", "delays", {"a": "b"}, derived_from=inputs))
    store.objects.local_path(f"{other}/manifest.json").unlink()
    result = _origins(judged_bench, elsewhere, _checks(judged_bench))
    assert "another split" in result.lacking and other in result.missing[0]


def test_the_gate_refuses_old_data_and_drift_and_another_policy_says_the_same(judged_bench: Bench) -> None:
    store, good = judged_bench.store, judged_bench.models["good"]
    fields = {"max_training_age": "P50D", "max_psi": 0.25, "complete_lineage": True}
    policy = GatePolicy.model_validate({**LENIENT.model_dump(mode="json"), **fields})
    request = judged_bench.request(good, policy=policy).model_copy(update={"split_checks": _checks(judged_bench)})
    result = evaluate(request, store)
    assert [reason.partition(":")[0] for reason in result.reasons] == ["drift wind", "lineage", "training age"]
    assert result.reasons[-1].endswith("expected at most 50 days before the newest test row, found 59.50 days")
    assert "the policy asks for none of it" not in page(store, result.evaluation)
    before = evaluate(request.model_copy(update={"policy": LENIENT}), store)
    assert before.verdict == "pass"
    assert "training age, drift, lineage: the policy asks for none of it" in page(store, before.evaluation)
    assert verdict_by(store, before.evaluation, policy).broken == result.reasons


def test_a_lineage_that_leads_to_all_of_it_is_complete(store: ArtifactStore) -> None:
    def made(kind: str, **inputs: str) -> str:
        return str(store.publish(kind, "x", {"a": kind}, derived_from=inputs))

    raw, definitions = made("snapshots"), made("config")
    tables = made("feature-tables", snapshot=raw, definitions=definitions)
    training_set = made("training-sets", feature_tables=tables)
    split = made("splits", training_set=training_set)
    model = made("models", training_set=training_set, split=split)
    assert origins_of(store, model, training_set, split, "").missing == ()
