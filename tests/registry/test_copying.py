"""Copies of a version to another store: its evidence, the gate there, both ledgers, and what happens after a kill."""

from pathlib import Path

import pytest

from gatehouse.api.data import verify
from gatehouse.errors import ConfigurationError, ErasedArtifactError
from gatehouse.evaluation.spec import EvaluationSpec, GatePolicy
from gatehouse.evaluation.stage import EvaluateRequest, evaluate
from gatehouse.registry.copying import Copied, copy_version
from gatehouse.registry.explanation import explain, seven_answers
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.naming import named
from gatehouse.store.erasure import erased_marker
from gatehouse.store.records import create_record
from gatehouse.store.store import ArtifactStore
from tests.evaluation.candidates import publish_model
from tests.kills import killed_at, was_killed
from tests.registry.gate import MANUAL, NAME, Gate, make_gate
from tests.training.synthetic import publish_split, publish_training_set, table


@pytest.fixture
def target(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore.open(tmp_path / "prod")


def _copy(gate: Gate, target: ArtifactStore, version: int = 1) -> Copied:
    return copy_version(named(gate.store, f"{NAME}:{version}"), target)


def test_a_copy_verifies_and_explains_itself_and_both_ledgers_name_each_other(
    gate: Gate, target: ArtifactStore
) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    copied = _copy(gate, target)
    assert (copied.decision, copied.version, copied.copied) == ("awaiting approval", 1, 6)
    assert not [result for result in verify(target) if result.problems]
    model = gate.state.versions[0].model
    assert seven_answers(target, model) == seven_answers(gate.store, model)
    sides = [(gate.store, target), (target, gate.store)]
    for own, other in sides:
        record = Ledger(own, NAME).records()[-1]
        assert record.counterpart and record.counterpart.store == other.address
        there = Ledger(other, NAME)
        assert there.counterpart("from", 1, record.counterpart.record).digest == record.counterpart.digest
    assert "was copied from version 1 of" in explain(target, f"{NAME}:1").acts[-1].what
    sizes = [Ledger(store, NAME).state().size for store in (gate.store, target)]
    again = _copy(gate, target)
    assert (again.version, again.copied) == (1, 0)
    assert [Ledger(store, NAME).state().size for store in (gate.store, target)] == sizes


def test_another_version_of_the_same_number_stays(gate: Gate, target: ArtifactStore) -> None:
    there = make_gate(target, rows="5,6")
    there.run(there.model(7), policy=MANUAL)
    gate.run(gate.model(1), policy=MANUAL)
    assert _copy(gate, target).version == 2
    assert [version.model for version in there.state.versions] == [there.model(7), gate.model(1)]
    assert gate.state.versions[0].version == 1


@pytest.mark.parametrize("written", [False, True])
def test_killed_at_any_write_a_repeat_ends_as_an_unbroken_copy(gate: Gate, tmp_path: Path, written: bool) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    unbroken = ArtifactStore.open(tmp_path / "unbroken")
    _copy(gate, unbroken)
    at, killed = 0, True
    while killed:
        at += 3
        target = ArtifactStore.open(tmp_path / str(at))
        with killed_at(target, at, written):
            killed = was_killed(lambda target=target: _copy(gate, target))
        whole = ArtifactStore.open(target.address)
        assert _copy(gate, whole).version == 1
        assert [record.kind for record in Ledger(whole, NAME).records()] == ["registered", "promoted", "copied"]
        assert sorted(map(str, whole.references())) == sorted(map(str, unbroken.references()))
    assert at > 12
    assert len([record for record in Ledger(gate.store, NAME).records() if record.kind == "copied"]) == at // 3 + 1


def test_what_was_erased_is_not_copied_and_a_store_is_not_its_own_target(gate: Gate, target: ArtifactStore) -> None:
    gate.run(gate.model(1), policy=MANUAL)
    with pytest.raises(ConfigurationError, match="--to"):
        _copy(gate, gate.store)
    erasure = {"record": "erasures/1.json", "reason": "asked", "by": "ada", "at": "2030-01-01T00:00:00Z"}
    create_record(gate.store.objects, erased_marker(gate.model(1)), erasure)
    with pytest.raises(ErasedArtifactError):
        _copy(gate, target)
    assert not Ledger(target, NAME).records()


def test_the_gate_of_the_target_judges_beside_its_own_champion_by_its_own_policy(
    store: ArtifactStore, target: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    lenient, strict = (
        GatePolicy(better_than_guessing=None, must_beat_baseline=()),
        GatePolicy(bars={"accuracy": {"min": 1}}),
    )  # type: ignore[dict-item]
    models = []
    for place, steps in ((store, 3), (target, 150)):
        gate = make_gate(place)
        snapshot = next(iter(place.references("snapshots")))
        training_set = publish_training_set(place, table(), task="binary", snapshot=str(snapshot))
        split = publish_split(place, training_set)
        model = publish_model(place, training_set, split, steps=steps)
        gate.say_how_it_was_made(model)
        request = EvaluateRequest(model=model, split=split, spec=EvaluationSpec(), policy=lenient)
        assert gate.register(model, evaluate(request, place).evaluation).decision == "approved"
        models.append(model)
    copied = copy_version(named(store, f"{NAME}:1"), target)
    inputs = target.manifest(copied.evaluation).derived_from
    assert (inputs["model"], inputs["champion"]) == (models[0], models[1])
    assert copied.decision == "refused" and copied.version == 0, "it is worse than the champion there"
    refused = copy_version(named(store, f"{NAME}:1"), target, strict)
    assert target.manifest(refused.evaluation).configuration["policy"]["bars"] and "bar accuracy" in str(
        refused.reasons
    )
    assert Ledger(target, NAME).state().champion == 1
