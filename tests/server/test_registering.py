"""What a server registers: under the policy of its project alone, in the name of the token."""

from types import SimpleNamespace
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.registration import WrongEvaluationError
from gatehouse.server.registry import Registration, enter
from gatehouse.server.tokens import Token, create_token, tokens_of
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, POLICY, make_gate


@pytest.fixture(autouse=True)
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)


def _token(store: ArtifactStore) -> Token:
    create_token(store, "rune", ["run"], 1)
    return next(iter(tokens_of(store).values()))


def _project(policy: GatePolicy, model: str = NAME) -> Any:
    return SimpleNamespace(file=SimpleNamespace(model=model), policy=policy)


def test_an_evaluation_becomes_a_version_in_the_name_of_the_token(store: ArtifactStore) -> None:
    gate, token = make_gate(store), _token(store)
    body = Registration(evaluation=gate.evaluate(gate.model(1), ""))
    result = enter(store, NAME, body, _project(POLICY), token)
    assert (result.decision, result.version) == ("approved", 1)
    assert {record.provenance["by"] for record in Ledger(store, NAME).records()} == {"rune"}


def test_the_policy_is_that_of_the_project(store: ArtifactStore) -> None:
    gate, token = make_gate(store), _token(store)
    body = Registration(evaluation=gate.evaluate(gate.model(1), "", policy=POLICY))
    with pytest.raises(WrongEvaluationError, match="another policy"):
        enter(store, NAME, body, _project(MANUAL), token)
    for project in (None, _project(POLICY, "rains")):
        with pytest.raises(ConfigurationError, match="under the policy of its project"):
            enter(store, NAME, body, project, token)
    assert not Ledger(store, NAME).records()
