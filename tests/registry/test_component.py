"""The registry's components called as KFP calls them."""

from datetime import datetime
from pathlib import Path

import pytest
from kfp import dsl

from gatehouse.components import await_approval, promote, register, resolve
from gatehouse.errors import ConfigurationError
from gatehouse.registry.awaiting_stage import ApprovalOverdueError
from gatehouse.registry.stage import NoChampionError
from tests.components import call, stored
from tests.registry.gate import MANUAL, NAME, Gate


def test_a_candidate_goes_from_resolve_to_champion(gate: Gate, tmp_path: Path) -> None:
    model, ledger = gate.model(1), {"store": gate.store.address, "model_name": NAME}
    candidate = stored(gate.store, model, dsl.Model)
    nothing = call(resolve, tmp_path, candidate=candidate, **ledger)
    assert (nothing.version, nothing.registered) == (0, "") and not [*Path(nothing.model.path).iterdir()]
    assert {nothing.model.metadata["reference"], nothing.split.metadata["reference"]} == {"none"}
    with pytest.raises(NoChampionError):
        call(resolve, tmp_path, required=True, **ledger)
    evaluation = gate.evaluate(model, "", policy=MANUAL)
    made = call(register, tmp_path, model=candidate, evaluation=stored(gate.store, evaluation), model_name=NAME)
    assert made.decision == made.verdict == "awaiting approval" and (made.number, made.alias) == (1, "staging")
    assert "gatehouse models approve delays:1" in made.reasons[0]
    gate.approve()
    text = Path(made.summary.path).read_text()
    assert text.startswith(f"# {NAME}: awaiting approval\n") and "pipeline_tag" not in text
    assert f"\n# {NAME}, version 1\n" in text and "## Training" in text
    moved = call(promote, tmp_path, reason="approved", **ledger)
    assert (moved.decision, moved.number) == ("promoted", 1)
    champion = call(resolve, tmp_path, **ledger)
    assert {path.name for path in Path(champion.model.path).iterdir()} == {"history.json", "model.json"}
    artifacts = (moved.champion, champion.model, champion.training_set, champion.split, champion.evaluation)
    references = [gate.store.manifest(artifact.metadata["reference"]).reference for artifact in artifacts]
    assert [*map(str, references)] == [model, model, gate.training_set, gate.split, evaluation]
    assert champion.version == 1 and datetime.fromisoformat(champion.registered).tzinfo
    manifest = Path(call(resolve, tmp_path, files=False, **ledger).model.path)
    assert manifest.read_text() == gate.store.manifest(model).to_json()
    with pytest.raises(ConfigurationError, match="'delete'"):
        call(promote, tmp_path, action="delete", version=1, **ledger)
    with pytest.raises(ConfigurationError, match=rf"\({NAME}\), found 'delay'.*{NAME}\?"):
        call(promote, tmp_path, **ledger | {"model_name": "delay"})


@pytest.mark.parametrize("earlier", [False, True])
def test_the_summary_of_a_refusal_gives_reasons_and_an_earlier_registration(
    gate: Gate, tmp_path: Path, earlier: bool
) -> None:
    model = gate.model(1)
    if earlier:
        gate.run(model)
    evaluation = stored(gate.store, gate.evaluate(model, "", good=False, policy=MANUAL))
    made = call(register, tmp_path, model=stored(gate.store, model, dsl.Model), evaluation=evaluation, model_name=NAME)
    assert (made.decision, made.number) == ("refused", int(earlier))
    text = Path(made.summary.path).read_text()
    assert r"- bar roc\_auc: expected at least 0.7, found 0.6. Look for" in text
    # A sentence right below a list would run on in its last entry.
    assert "0 other candidates" in text and text.count("before\n\n") == 1
    assert ("champion: an earlier run registered the same model\n" in text) == earlier


def test_a_run_waits_for_a_person_and_promotes_what_was_approved(gate: Gate, tmp_path: Path) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    ledger = {"store": gate.store.address, "model_name": NAME}
    with pytest.raises(ApprovalOverdueError, match="models approve delays:1"):
        call(await_approval, tmp_path, timeout_minutes=0.0001, **ledger)
    gate.approve(by="grace")
    waited = call(await_approval, tmp_path, version=1, **ledger)
    assert (waited.number, waited.by) == (1, "grace") and gate.verdict_digest().removeprefix(
        "sha256-"
    ) in waited.verdict
    assert call(promote, tmp_path, version=waited.number, **ledger).decision == "promoted"
