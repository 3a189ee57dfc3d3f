"""The ledger as other places show it: MLflow, and the Kubeflow Model Registry where one is named.

The ledger is the truth, these are its projections: written after the ledger changed, from any state that a killed
projection left behind, and never read back into a decision.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.registry.showing.in_mlflow import InMlflow
from gatehouse.components.registry.showing.in_model_registry import InModelRegistry, registry_of
from gatehouse.components.registry.state import State
from gatehouse.components.tracking.mlflow_client import tracking_of
from gatehouse.components.tracking.shown import Place, warning_on_failure


class Projection(Protocol):
    """A place that shows a ledger, and what it is called."""

    title: str

    @property
    def place(self) -> Place:
        """Where it is, and what it shows already."""
        ...

    def writing(self) -> AbstractContextManager[Callable[[Ledger, State, int], None]]:
        """A connection: a function that brings the place to a state of a ledger, given how many records it knows."""
        ...


def projections(store: ArtifactStore) -> Iterator[Projection]:
    """Every place that shows the ledgers of this store."""
    if tracking := tracking_of(store):
        yield InMlflow(tracking)
    if registry := registry_of(store):
        yield InModelRegistry(registry)


def project(store: ArtifactStore, model_name: str, state: State, label: str = "register:projection") -> None:
    """Bring every place to what the ledger says, where the ledger changed since the last time.

    What goes wrong is a warning in the run record: the decision stands, and the next run tries again.

    Args:
        store: The store that holds ledger and models.
        model_name: Name under which models are registered.
        state: What the ledger says.
        label: Under which the run record notes it.
    """
    for projection in projections(store):
        if state.size and not projection.place.is_shown(_marker(model_name, state.size)):
            with warning_on_failure(store, label, projection.title):
                write(projection, Ledger(store, model_name))


def write(projection: Projection, ledger: Ledger, anew: bool = False) -> None:
    """Bring one place to what the ledger says, by what it lacks, or `anew` whatever it was told before."""
    place, name = projection.place, ledger.model_name
    with projection.writing() as bring:
        state = ledger.state()
        told = (
            0 if anew else next((size for size in range(state.size, 0, -1) if place.is_shown(_marker(name, size))), 0)
        )
        while told < state.size:
            bring(ledger, state, told)
            place.mark_shown(_marker(name, state.size))
            # Who went ahead meanwhile may have shown more, and this here have been written over it.
            told, state = state.size, ledger.state()


def _marker(model_name: str, size: int) -> str:
    return f"registry/{model_name}/{size:06d}"
