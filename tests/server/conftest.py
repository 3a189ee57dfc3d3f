"""A served gate: a model in staging that waits for approval, and callers of each scope."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gatehouse.server.access import Rate
from gatehouse.server.app import create_app
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, Gate, make_gate
from tests.server.serving import Client, client, serving


@dataclass
class Served:
    """A gate, its server's address, and who calls it."""

    gate: Gate
    address: str
    nobody: Client
    reader: Client
    runner: Client
    promoter: Client
    anybody: Client


@pytest.fixture
def served(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server of a store with two versions of one model."""
    monkeypatch.setattr("gatehouse.registry.projection.tracking_of", lambda store: None)
    gate = make_gate(store)
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=MANUAL)
    callers = [
        client(store, "", "ros", "read"),
        client(store, "", "rune", "run"),
        client(store, "", "paul", "promote"),
        client(store, "", "ann", "read", "run", "promote"),
    ]
    with serving(create_app(store, rate=Rate(1000, 1000))) as address:
        for caller in callers:
            caller.address = address
        yield Served(gate, address, Client(address, ""), *callers)
