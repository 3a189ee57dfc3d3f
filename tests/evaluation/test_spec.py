"""The configuration of evaluation and gate says no to what cannot be meant."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gatehouse.evaluation.spec import Bar, ChampionRule, GatePolicy, Terms
from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.tasks import BINARY
from gatehouse.store.identity import identity_digest

POLICY = Path(__file__).parents[2] / "pipelines" / "projects" / "flights" / "policy.yaml"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"bars": {"roc_auc": 1}}, "expected min, max or both, as {min: 0.7}, found 1"),
        ({"bars": {"roc_auc": float("nan")}}, "expected min, max or both, as {min: 0.7}, found nan"),
        ({"bars": {"roc_auc": {}}}, "expected min, max or both, found neither"),
        ({"bars": {"roc_auc": {"min": 0.9, "max": 0.7}}}, "expected min <= max, found min 0.9 and max 0.7"),
        ({"bars": {"speed": {"min": 0.9}}}, "expected one of the metrics accuracy, .*found 'speed'"),
        ({"champion": {"metric": "speed"}}, "found 'speed'"),
        ({"slices": {"speed": 1}}, "found 'speed'"),
        ({"bars": {"roc_auc": {"min": float("nan")}}}, "finite"),
        ({"champion": {"tolerance": float("inf")}}, "found inf"),
        ({"champion": {"tolerance": "0.5"}}, "found '0.5'"),
        ({"regressions": {"tolerance": True}}, "a share"),
        ({"champion": {"confidence": 1.0}}, "confidence"),
        ({"must_beat": []}, "must_beat"),
        ({"rules": {"bars roc_auc": {"owner": "ada"}}}, "begin with bar, baseline, guessing, .*found 'bars roc_auc'"),
        ({"rules": {"slice carrier=OO": {"severity": "ignore"}}}, "severity"),
        (
            {"alignment": {"live": "clicks"}, "live": {"values": {"revenue": 0}}},
            "alignment.live: .*revenue, found 'clicks'",
        ),
    ],
)
def test_a_policy_that_cannot_be_meant(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GatePolicy.model_validate(body)


def test_metrics_of_other_tasks_are_named_with_what_is_offered() -> None:
    policy = GatePolicy(bars={"r2": Bar(min=0.9), "roc_auc": Bar(min=0.7)}, champion=ChampionRule(metric="mse"))
    offered = ", ".join(metrics_for("binary"))
    assert "roc_auc" in metrics_for("binary") and "r2" not in metrics_for("binary")
    assert list(policy.problems(BINARY)) == [
        f"bars: the task binary has the metrics {offered}; found r2",
        f"champion.metric: the task binary has the metrics {offered}; found mse",
    ]
    assert list(GatePolicy().problems(BINARY)) == []
    misspelt = GatePolicy(rules={"bar roc_acu": Terms(owner="ada"), "slice carrier=OO": Terms(severity="warn")})
    (problem,) = misspelt.problems(BINARY)
    assert problem.startswith("rules: ") and problem.endswith("found roc_acu (did you mean roc_auc?)")


def test_the_same_rules_in_another_order_are_the_same_policy() -> None:
    first = GatePolicy.model_validate(
        {"bars": {"roc_auc": {"min": 0.7}, "log_loss": {"max": 0.5}}, "must_beat_baseline": ["roc_auc", "log_loss"]}
    )
    other = GatePolicy.model_validate(
        {
            "must_beat_baseline": ["log_loss", "roc_auc", "log_loss"],
            "bars": {"log_loss": {"max": 0.5}, "roc_auc": {"min": 0.7}},
            "approval": "automatic",
        }
    )
    assert identity_digest(first) == identity_digest(other)
