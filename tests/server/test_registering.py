"""What a server registers: under the policy of its project alone, in the name of the token."""

from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.api.models import register
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, POLICY, make_gate


@pytest.fixture(autouse=True)
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)


def _project(policy: GatePolicy, model: str = NAME) -> Any:
    return SimpleNamespace(file=SimpleNamespace(model=model), policy=policy)


def test_an_evaluation_becomes_a_version_in_the_name_of_the_token(store: ArtifactStore) -> None:
    gate = make_gate(store)
    result = register(store, NAME, gate.evaluate(gate.model(1), ""), _project(POLICY), "rune")
    assert (result.decision, result.version) == ("approved", 1)
    assert {record.provenance["by"] for record in Ledger(store, NAME).records()} == {"rune"}


def test_the_policy_is_that_of_the_project(store: ArtifactStore) -> None:
    gate = make_gate(store)
    evaluation = gate.evaluate(gate.model(1), "", policy=POLICY)
    with pytest.raises(WrongEvaluationError, match="another policy"):
        register(store, NAME, evaluation, _project(MANUAL), "rune")
    for project in (None, _project(POLICY, "rains")):
        with pytest.raises(ConfigurationError, match="under the policy of its project"):
            register(store, NAME, evaluation, project, "rune")
    assert not Ledger(store, NAME).records()
