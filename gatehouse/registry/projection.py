"""Copies of the ledger in other places: MLflow, and the Kubeflow Model Registry if one is set.

The ledger decides. Its copies (projections) are written after it changed, also where an interrupted write left them
incomplete, and are never read for a decision.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.showing.in_mlflow import InMlflow
from gatehouse.registry.showing.in_model_registry import InModelRegistry, registry_of
from gatehouse.registry.state import State
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.pipeline_runs import leave_ledger
from gatehouse.tracking.place import Place, is_shown_later, warning_on_failure


class Projection(Protocol):
    """A place that shows a ledger, with its name."""

    title: str

    @property
    def place(self) -> Place:
        """Where it is, and how many records it shows already."""
        ...

    def writing(self) -> AbstractContextManager[Callable[[Ledger, State, int], None]]:
        """A connection: a function that updates the place to a ledger's state, given how many records it has seen."""
        ...


def projections(store: ArtifactStore) -> Iterator[Projection]:
    """All places that show the ledgers of this store."""
    if tracking := tracking_of(store):
        yield InMlflow(tracking)
    if registry := registry_of(store):
        yield InModelRegistry(registry)


def project(store: ArtifactStore, model_name: str, state: State, label: str = "register:projection") -> bool:
    """Update every place to the ledger's state, if the ledger changed since the last update.

    An error becomes a warning in the run record: the decision is made, and the next run tries again. If the run is
    shown later, this only notes that the ledger is to be shown.

    Args:
        store: The store that holds ledger and models.
        model_name: Name under which models are registered.
        state: The ledger's state.
        label: Name of the entry in the run record.

    Returns:
        Whether nothing failed.
    """
    failed = False
    for projection in _behind(store, model_name, state):
        if is_shown_later():
            leave_ledger(store, model_name)
            break
        with warning_on_failure(store, label, projection.title) as showing:
            write(projection, Ledger(store, model_name))
        failed = failed or showing.failed
    return not failed


def _behind(store: ArtifactStore, model_name: str, state: State) -> Iterator[Projection]:
    """The places that do not show this state of a ledger."""
    for projection in projections(store):
        if state.size and not projection.place.is_shown(_marker(model_name, state.size)):
            yield projection


def write(projection: Projection, ledger: Ledger, anew: bool = False) -> None:
    """Update one place to the ledger's state: only what is new, or everything with `anew`."""
    place, name = projection.place, ledger.model_name
    with projection.writing() as bring:
        state = ledger.state()
        told = (
            0 if anew else next((size for size in range(state.size, 0, -1) if place.is_shown(_marker(name, size))), 0)
        )
        while told < state.size:
            bring(ledger, state, told)
            place.mark_shown(_marker(name, state.size))
            # If another process wrote a newer state in the meantime, this write may have replaced it: check again.
            told, state = state.size, ledger.state()


def _marker(model_name: str, size: int) -> str:
    return f"registry/{model_name}/{size:06d}"
