"""The configuration of evaluation and gate says no to what cannot be meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gatehouse.components.evaluation.spec import Bar, EvaluationSpec, GatePolicy

POLICY = Path(__file__).parents[3] / "pipelines" / "projects" / "flights" / "policy.yaml"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"bars": {"roc_auc": {}}}, "expected min, max or both, found neither"),
        ({"bars": {"roc_auc": {"min": 0.9, "max": 0.7}}}, "expected min <= max, found min 0.9 and max 0.7"),
        ({"bars": {"accuracy": {"min": 0.9}}}, "accuracy"),
        ({"bars": {"roc_auc": {"min": float("nan")}}}, "finite"),
        ({"champion": {"tolerance": -0.1}}, "tolerance"),
        ({"champion": {"confidence": 1.0}}, "confidence"),
        ({"must_beat": []}, "must_beat"),
    ],
)
def test_a_policy_that_cannot_be_meant(body: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GatePolicy.model_validate(body)


def test_a_policy_survives_its_own_json() -> None:
    policy = GatePolicy(bars={"roc_auc": Bar(min=0.7)})
    assert GatePolicy.model_validate_json(policy.model_dump_json()) == policy


def test_the_policy_of_the_example_project_holds_its_bars() -> None:
    policy = GatePolicy.model_validate(yaml.safe_load(POLICY.read_text()))
    assert policy.bars == {"roc_auc": Bar(min=0.725), "log_loss": Bar(max=0.495)}
    assert policy.leakage_alarm == 0.80
    assert "log_loss" in policy.must_beat_baseline


def test_specs_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        EvaluationSpec().seed = 1  # type: ignore[misc]
