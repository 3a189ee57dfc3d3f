"""`gatehouse gate try`: every judged candidate of a name under another policy."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gatehouse.cli.gate import app
from gatehouse.cli.main import _register
from gatehouse.cli.main import app as every
from gatehouse.errors import ConfigurationError
from gatehouse.registry.ledger import Ledger
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from tests.registry.gate import NAME, POLICY, Gate


def _judged(gate: Gate, seed: int, roc_auc: float) -> str:
    """A candidate with this ROC AUC, judged under a bar of 0.7 and entered in the ledger."""
    model = gate.model(seed)
    rule = {"name": "bar roc_auc", "expected": "at least 0.7", "found": f"{roc_auc}", "holds": roc_auc >= 0.7}
    said = "pass" if roc_auc >= 0.7 else "refused"
    metrics = {"candidate": {"roc_auc": roc_auc, "log_loss": 0.49}, "baseline": {"roc_auc": 0.6, "log_loss": 0.6}}
    verdict = {"verdict": said, "rules": [rule], "comparison": None, "policy": identity_of(POLICY), "warnings": []}
    curves = {"candidate": {"confusion": [[0, 0, 500], [1, 0, 500]]}}
    bodies = {"metrics": metrics, "slices": [], "verdict": verdict, "curves": curves}
    evaluation = gate.store.publish(
        "evaluations",
        NAME,
        {f"{name}.json": canonical_json(body) for name, body in bodies.items()},
        derived_from={"model": model, "training_set": gate.training_set, "split": gate.split}
        | ({"champion": champion} if (champion := gate.resolve(model)) else {}),
        configuration={"policy": identity_of(POLICY), "spec": {}},
        details={"task": "binary", "rows": 1000},
    )
    gate.register(model, str(evaluation))
    return model


@pytest.fixture
def judged(gate: Gate, tmp_path: Path) -> Gate:
    """A gate that has refused one candidate and passed another; with `policy.yaml`, a lower bar, in the folder."""
    _judged(gate, 1, 0.65)
    _judged(gate, 2, 0.75)
    (tmp_path / "policy.yaml").write_text(
        "bars: {roc_auc: {min: 0.64}}\nleakage_alarm: {roc_auc: 0.74}\nbetter_than_guessing: null\n"
    )
    return gate


def _try(gate: Gate, policy: Path, *words: str) -> str:
    result = CliRunner().invoke(app, ["try", str(policy), *words, "--store", gate.store.address])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return str(result.output)


def test_every_judged_candidate_is_shown_with_both_verdicts(judged: Gate, tmp_path: Path) -> None:
    head, refused, passed = _try(judged, tmp_path / "policy.yaml", "--on", NAME).splitlines()
    assert head.split("  ")[0] == "version"
    assert refused.startswith("models/delays/") and refused.split()[2:] == ["refused", "pass"]
    name, evaluation, *verdicts = passed.split()[:4]
    assert (name, verdicts) == (f"{NAME}:1", ["pass", "refused"]) and evaluation.startswith("evaluations/delays/")
    assert "leakage alarm roc_auc: expected roc_auc of at most 0.74, found 0.7500" in passed


def test_one_version_as_json(judged: Gate, tmp_path: Path) -> None:
    (only,) = json.loads(_try(judged, tmp_path / "policy.yaml", "--on", f"{NAME}:1", "--format", "json"))
    assert (only["version"], only["then"], only["now"], only["not_measured"]) == (1, "pass", "refused", [])


def test_an_evaluation_that_is_gone_was_not_measured(judged: Gate, tmp_path: Path) -> None:
    for _, verdict in Ledger(judged.store, NAME).state().verdicts:
        judged.store.objects.local_path(f"{verdict.evaluation}/manifest.json").unlink()
    text = _try(judged, tmp_path / "policy.yaml")
    assert text.count("not known") == 2 and "not measured then: anything" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [("bars: {speed: {min: 1}}", "policy.yaml:1: .*speed"), (None, "policy.yaml: expected a file in .*, found none")],
)
def test_a_policy_that_cannot_be_read(judged: Gate, tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "policy.yaml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(ConfigurationError, match=told):
        _try(judged, path)


def test_it_is_a_verb_of_the_command_line() -> None:
    _register("gate")
    assert "try" in CliRunner().invoke(every, ["gate", "--help"]).output
