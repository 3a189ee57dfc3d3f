"""`gatehouse gate try`: every judged candidate of a name under another policy."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import gate as app
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from tests.registry.gate import NAME, POLICY, Gate


def _judged(gate: Gate, seed: int, roc_auc: float) -> None:
    model, good = gate.model(seed), roc_auc >= 0.7
    rule = {"name": "bar roc_auc", "expected": "at least 0.7", "observed": f"{roc_auc}", "holds": good}
    metrics = {"candidate": {"roc_auc": roc_auc, "log_loss": 0.49}, "baseline": {"roc_auc": 0.6, "log_loss": 0.6}}
    verdict = {"verdict": "pass" if good else "refused", "rules": [rule], "comparisons": {}, "guessing": None}
    verdict |= {"policy": identity_of(POLICY), "warnings": [], "counted": {"units": 1000}}
    verdict |= {"seen": {"rows": {}, "of": 1000, "left": 1000, "unread": []}}
    curves = {"candidate": {"confusion": [[0, 0, 500], [1, 0, 500]]}}
    bodies = {"metrics": metrics, "slices": [], "verdict": verdict, "curves": curves}
    inputs = {"model": model, "training_set": gate.training_set, "split": gate.split}
    inputs |= {"champion": champion} if (champion := gate.resolve(model)) else {}
    evaluation = gate.store.publish(
        "evaluations",
        NAME,
        {f"{name}.json": canonical_json(body) for name, body in bodies.items()},
        derived_from=inputs,
        configuration={"policy": identity_of(POLICY), "spec": {}},
        details={"task": "binary", "rows": 1000},
    )
    gate.register(model, str(evaluation))


@pytest.fixture
def judged(gate: Gate, tmp_path: Path) -> Gate:
    """A gate that has refused one candidate and passed another; with `policy.yaml`, a lower bar, in the folder."""
    _judged(gate, 1, 0.65)
    _judged(gate, 2, 0.75)
    text = "bars: {roc_auc: {min: 0.64}}\nleakage_alarm: {roc_auc: 0.74}\nbetter_than_guessing: null\n"
    (tmp_path / "policy.yaml").write_text(text)
    return gate


def _try(gate: Gate, policy: Path, *words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["try", str(policy), *words, "--json", "--store", gate.store.address])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    trials: list[dict[str, Any]] = json.loads(result.output)
    return trials


def test_every_judged_candidate_is_shown_with_both_verdicts(judged: Gate, tmp_path: Path) -> None:
    refused, passed = _try(judged, tmp_path / "policy.yaml", "--on", NAME)
    assert (refused["version"], refused["then"], refused["now"]) == (0, "refused", "pass")
    assert (passed["version"], passed["then"], passed["now"]) == (1, "pass", "refused")
    assert passed["broken"] == ["leakage alarm roc_auc: expected roc_auc of at most 0.74, found 0.7500"]
    assert passed["evaluation"].startswith("evaluations/delays/") and passed["not_measured"] == []
    assert _try(judged, tmp_path / "policy.yaml", "--on", f"{NAME}:1") == [passed]


def test_an_evaluation_that_is_gone_was_not_measured(judged: Gate, tmp_path: Path) -> None:
    for _, verdict in judged.state.verdicts:
        judged.store.objects.local_path(f"{verdict.evaluation}/manifest.json").unlink()
    trials = _try(judged, tmp_path / "policy.yaml")
    assert [trial["now"] for trial in trials] == ["not known"] * 2
    assert all(trial["not_measured"][0].startswith("anything") for trial in trials)


def test_the_effective_policy_says_what_each_rule_can_still_refuse(judged: Gate, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("bars: {roc_auc: {min: -5}, log_loss: {max: 0.55}}\nmust_beat_baseline: []\n")

    def shown(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(app, ["policy", str(tmp_path / "policy.yaml"), *words, "--json"])
        assert result.exit_code == 0, result.output
        body: dict[str, Any] = json.loads(result.output)
        return body

    body = shown("--on", f"{NAME}:1", "--store", judged.store.address)
    reach = {rule["rule"]: rule["without_features"] for rule in body["rules"]}
    assert (reach["bar roc_auc"], reach["bar log_loss"], reach["leakage alarm roc_auc"]) == ("passes", "refused", "")
    assert (
        body["settings"]["leakage_alarm"] == {"roc_auc": 0.95} and body["settings"]["champion"]["tolerance"] == "0.5%"
    )
    assert {"must_beat_baseline", "regressions"} <= {*body["off"]} and "leakage_alarm" not in body["off"]
    assert body["evaluation"] == judged.state.verdicts[-1][1].evaluation and body["warnings"] == []
    empty = tmp_path / "empty"
    empty.mkdir()
    unjudged = shown("--store", str(empty))
    assert unjudged["rules"] == [] and unjudged["settings"]["leakage_alarm"] is None
    assert "leakage_alarm" not in unjudged["off"] and "must_beat_baseline" in unjudged["off"]
