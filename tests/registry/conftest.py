"""Fixtures of the registry's tests."""

import pytest

from gatehouse.store.store import ArtifactStore
from tests.registry.gate import Gate, make_gate


@pytest.fixture
def gate(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate whose ledger is not shown in MLflow."""
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    return make_gate(store)


@pytest.fixture
def three(gate: Gate) -> Gate:
    for seed in (1, 2, 3):
        gate.run(gate.model(seed))
    return gate
