"""Fixtures of the registry's tests."""

from collections.abc import Callable

import pytest

from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate, make_gate


@pytest.fixture
def untracked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without MLflow: for tests of the ledger alone."""
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)


@pytest.fixture
def gate(store: ArtifactStore, untracked: None) -> Gate:
    """A gate whose ledger is not shown in MLflow."""
    return make_gate(store)


@pytest.fixture
def ledger_keys(store: ArtifactStore) -> Callable[[], list[str]]:
    """The keys of the ledger's records as they are now."""
    return lambda: list(store.objects.list(f"registry/{NAME}/ledger"))
