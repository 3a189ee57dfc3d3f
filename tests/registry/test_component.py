"""The registry's components called as KFP calls them: plain parameters in, plain outputs out."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from gatehouse.components.promote.component import promote
from gatehouse.components.register.component import register
from gatehouse.errors import ConfigurationError
from gatehouse.pipelines.interfaces import component_of
from gatehouse.store.parameters import parameter_of
from tests.registry.gate import MANUAL, NAME, Gate


def test_a_candidate_goes_from_resolve_to_champion_through_addresses(gate: Gate, tmp_path: Path) -> None:
    store, policy = gate.store.address, parameter_of(MANUAL)
    model = gate.model(1)
    asked = (gate.store.address_of(model), gate.store.address_of(gate.training_set), gate.split, policy)
    assert component_of("resolve").python_func(store, NAME, *asked) == ("",)
    evaluation = gate.evaluate(model, "", policy=MANUAL)
    summary = SimpleNamespace(path=str(tmp_path / "summary.md"))
    entered = register.python_func(store, NAME, asked[0], gate.store.address_of(evaluation), policy, summary)
    assert entered[:4] == ("awaiting approval", 1, "staging", "awaiting approval")
    assert "gatehouse models approve delays:1" in entered[4][0]
    gate.approve()
    told = Path(summary.path).read_text()
    assert told.startswith(f"# {NAME}: awaiting approval\n") and "pipeline_tag" not in told
    assert f"\n# {NAME}, version 1\n" in told and "## Training" in told
    assert promote.python_func(store, NAME, "promote", 0, "approved") == ("promoted", 1, model)
    champion = component_of("champion").python_func(store, NAME)
    assert champion[:6] == (model, 1, gate.training_set, gate.split, evaluation, "")
    assert datetime.fromisoformat(champion[6]).tzinfo


def test_the_summary_of_a_refusal_gives_the_reasons(gate: Gate, tmp_path: Path) -> None:
    model, policy = gate.model(1), parameter_of(MANUAL)
    summary = SimpleNamespace(path=str(tmp_path / "summary.md"))
    evaluation = gate.evaluate(model, "", good=False, policy=MANUAL)
    assert register.python_func(gate.store.address, NAME, model, evaluation, policy, summary)[:3] == ("refused", 0, "")
    told = Path(summary.path).read_text()
    assert "- bar roc_auc: expected at least 0.7, found 0.6. Look for better features" in told
    assert f"- 0 other candidates of {NAME} were judged on this test set before" in told


def test_the_summary_of_a_refusal_says_where_the_same_model_was_registered_before(gate: Gate, tmp_path: Path) -> None:
    model = gate.model(1)
    gate.run(model)
    policy = parameter_of(MANUAL)
    summary = SimpleNamespace(path=str(tmp_path / "summary.md"))
    evaluation = gate.evaluate(model, "", good=False, policy=MANUAL)
    assert register.python_func(gate.store.address, NAME, model, evaluation, policy, summary)[:2] == ("refused", 1)
    assert "champion: an earlier run registered the same model\n" in Path(summary.path).read_text()


def test_an_unknown_action_is_a_configuration_error(gate: Gate) -> None:
    gate.run(gate.model(1))
    with pytest.raises(ConfigurationError, match=r"promote, rollback, archive.*'delete'"):
        promote.python_func(gate.store.address, NAME, "delete", 1, "")
