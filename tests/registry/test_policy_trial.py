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
