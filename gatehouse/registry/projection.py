"""Copies of the ledger in other places: MLflow, and the Kubeflow Model Registry if one is set.

The ledger decides. Its copies (projections) are written after it changed, also where an interrupted write left them
incomplete, and are never read for a decision.
"""

from collections.abc import Iterator

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.mlflow_projection import InMlflow
from gatehouse.registry.model_registry import InModelRegistry, registry_of
from gatehouse.registry.state import State
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.pipeline_runs import leave_ledger
from gatehouse.tracking.place import is_shown_later, warning_on_failure

Projection = InMlflow | InModelRegistry


def projections(store: ArtifactStore) -> Iterator[Projection]:
    """All places that show the ledgers of this store."""
    if tracking := tracking_of(store):
        yield InMlflow(tracking)
    if registry := registry_of(store):
        yield registry


def project(store: ArtifactStore, model_name: str, state: State, label: str = "register:projection") -> bool:
    """Update every place to the ledger's state, if the ledger changed since the last update.

    An error becomes a warning in the run record, under `label`: the decision is made, and the next run tries again. If
    the run is shown later, this only notes that the ledger is to be shown. Returns whether nothing failed.
    """
    succeeded = True
    for projection in projections(store):
        if not state.size or projection.place.is_shown(_marker(model_name, state.size)):
            continue
        if is_shown_later():
            leave_ledger(store, model_name)
            break
        with warning_on_failure(store, label, projection.title) as showing:
            write(projection, Ledger(store, model_name))
        succeeded = succeeded and not showing.failed
    return succeeded


def write(projection: Projection, ledger: Ledger, anew: bool = False) -> None:
    """Update one place to the ledger's state: only what is new, or everything with `anew`."""
    place, name = projection.place, ledger.model_name
    with projection.writing() as show:
        state = ledger.state()
        sizes = (size for size in range(state.size, 0, -1) if place.is_shown(_marker(name, size)))
        shown = 0 if anew else next(sizes, 0)
        while shown < state.size:
            show(ledger, state, shown)
            place.mark_shown(_marker(name, state.size))
            # If another process wrote a newer state in the meantime, this write may have replaced it: check again.
            shown, state = state.size, ledger.state()


def _marker(model_name: str, size: int) -> str:
    return f"registry/{model_name}/{size:06d}"
