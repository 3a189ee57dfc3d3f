"""The registry's components called as KFP calls them: plain parameters in, plain outputs out."""

from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from gatehouse.pipelines.interfaces import component_of

from gatehouse.components.promote.component import promote
from gatehouse.components.register.component import register
from gatehouse.errors import ConfigurationError
from tests.registry.gate import MANUAL, NAME, Gate


def test_a_candidate_goes_from_resolve_to_champion_through_addresses(gate: Gate, tmp_path: Path) -> None:
    store, model = gate.store.address, gate.model(1)
    folder = SimpleNamespace(path=str(tmp_path / "model"), metadata={})
    candidate = gate.store.address_of(model)
    assert component_of("resolve").python_func(store, NAME, folder, candidate)[:3] == ("", 0, "")
    evaluation = gate.evaluate(model, "", policy=MANUAL)
    summary = SimpleNamespace(path=str(tmp_path / "summary.md"))
    result = register.python_func(store, NAME, candidate, gate.store.address_of(evaluation), summary)
    assert result[:4] == ("awaiting approval", 1, "staging", "awaiting approval")
    assert "gatehouse models approve delays:1" in result[4][0]
    gate.approve()
    text = Path(summary.path).read_text()
    assert text.startswith(f"# {NAME}: awaiting approval\n") and "pipeline_tag" not in text
    assert f"\n# {NAME}, version 1\n" in text and "## Training" in text
    assert promote.python_func(store, NAME, "promote", 0, "approved") == ("promoted", 1, model, f"{store}/{model}")
    champion = component_of("resolve").python_func(store, NAME, folder)
    assert {path.name for path in Path(folder.path).iterdir()} == {"history.json", "model.json"}
    assert champion[:5] == (model, 1, gate.training_set, gate.split, evaluation)
    assert datetime.fromisoformat(champion[5]).tzinfo and champion[6] == gate.store.address_of(model)
    with pytest.raises(ConfigurationError, match="'delete'"):
        promote.python_func(store, NAME, "delete", 1, "")


@pytest.mark.parametrize("earlier", [False, True])
def test_the_summary_of_a_refusal_gives_reasons_and_an_earlier_registration(
    gate: Gate, tmp_path: Path, earlier: bool
) -> None:
    model = gate.model(1)
    if earlier:
        gate.run(model)
    summary = SimpleNamespace(path=str(tmp_path / "summary.md"))
    evaluation = gate.evaluate(model, "", good=False, policy=MANUAL)
    result = register.python_func(gate.store.address, NAME, model, evaluation, summary)
    assert result[:2] == ("refused", int(earlier))
    text = Path(summary.path).read_text()
    assert "- bar roc_auc: expected at least 0.7, found 0.6. Look for" in text
    assert "0 other candidates" in text
    assert ("champion: an earlier run registered the same model\n" in text) == earlier
