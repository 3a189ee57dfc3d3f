"""The verbs of `gatehouse models`."""

import pytest
from typer.testing import CliRunner

from gatehouse.commands.models import app
from gatehouse.components.registry.promoting.acts import PromotionError
from gatehouse.errors import ConfigurationError
from tests.components.registry.gate import MANUAL, NAME, Gate


def _call(gate: Gate, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--store", gate.store.address])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_list_names_versions_aliases_and_references(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second, policy=MANUAL)
    lines = _call(gate, "list").splitlines()
    assert lines[1].split()[:3] == [NAME, "1", "champion"] and lines[1].split()[-1] == first
    assert lines[2].split()[:3] == [NAME, "2", "staging"] and lines[2].split()[-1] == second


def test_show_tells_the_ledger_with_reasons(gate: Gate) -> None:
    gate.run(gate.model(1))
    gate.run(gate.model(2), good=False)
    text = _call(gate, "show")
    assert "registered as version 1" in text and "version 1 is champion" in text
    assert "refused models/delays/" in text and "bar roc_auc: expected at least 0.7, found 0.6" in text


def test_show_of_a_version_gives_its_lineage(gate: Gate) -> None:
    gate.run(gate.model(1))
    text = _call(gate, "show", NAME, "--version", "1")
    assert gate.training_set in text and "snapshots/raw/sha256-" in text


def test_promote_rollback_and_archive(gate: Gate) -> None:
    first, second = gate.model(1), gate.model(2)
    gate.run(first)
    gate.run(second, policy=MANUAL)
    assert f"the champion is {second}" in _call(gate, "promote", "--reason", "approved on Monday")
    assert f"the champion is {first}" in _call(gate, "rollback", "--reason", "it rained")
    assert _call(gate, "list").splitlines()[2].split()[:4] == [NAME, "2", "rolled", "back"]
    for words in (("promote",), ("promote", "2")):
        with pytest.raises(PromotionError, match=r"no version in staging|rolled back"):
            _call(gate, *words)
    assert f"the champion is {second}" in _call(gate, "promote", "2", "--reason", "it was the sensor")
    assert f"the champion is {first}" in _call(gate, "rollback", "--reason", "it rained again")
    assert "version 2: archived" in _call(gate, "archive", "2")
    with pytest.raises(PromotionError):
        _call(gate, "archive", "1")


def test_an_unknown_model_is_named_with_those_that_exist(gate: Gate) -> None:
    gate.run(gate.model(1))
    with pytest.raises(ConfigurationError, match=f"{NAME}.*'nobody'"):
        _call(gate, "show", "nobody")
