"""The ledger as MLflow shows it: registered model, versions with lineage and tags, and the aliases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.showing.facts import EVALUATION, MODEL, VERDICT, measured, origin, standing
from gatehouse.registry.state import ALIASES, ModelVersion, State, Verdict
from gatehouse.reports.advice import advised
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.reference import Reference
from gatehouse.tracking.mlflow_client import Point, Tracking, log, short
from gatehouse.tracking.training import show_training

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion as ShownVersion


@dataclass(frozen=True)
class InMlflow:
    """MLflow as a place that shows ledgers; MLflow is imported only for writing.

    Attributes:
        place: Where it is.
    """

    place: Tracking
    title = "MLflow"

    @contextmanager
    def writing(self) -> Iterator[Callable[[Ledger, State, int], None]]:
        """A connection to MLflow."""
        with self.place.client() as client:
            yield partial(_show, self.place, client)


def _show(tracking: Tracking, client: "MlflowClient", ledger: Ledger, state: State, told: int) -> None:
    _show_verdicts(tracking, client, [verdict for number, verdict in state.verdicts if number > told])
    _show_versions(tracking, client, ledger.model_name, state)


def _show_verdicts(tracking: Tracking, client: "MlflowClient", verdicts: list[Verdict]) -> None:
    """Log each verdict's test metrics to the run that trained the candidate, refused candidates included."""
    for verdict in verdicts:
        run = show_training(tracking, client, Reference.parse(verdict.subject.model))
        shown = (run.data.tags.get(EVALUATION), run.data.tags.get(VERDICT))
        if shown == (verdict.evaluation, verdict.told):
            continue
        points: list[Point] = [(name, value, 0) for name, value in measured(tracking.store, verdict.evaluation).items()]
        tags = {VERDICT: verdict.told, "gatehouse.reasons": "\n".join(advised(verdict.reasons))}
        log(client, run, points=points, tags=tags | {EVALUATION: verdict.evaluation})


def _show_versions(tracking: Tracking, client: "MlflowClient", model_name: str, state: State) -> None:
    """Create what is missing by tag, then set the tags and aliases that changed."""
    registered = {each.name for each in client.search_registered_models(f"name = '{model_name}'")}
    if state.versions and model_name not in registered:
        client.create_registered_model(model_name, tags={"gatehouse.store": tracking.store.address})
    shown = {each.tags.get(MODEL, ""): each for each in client.search_model_versions(f"name = '{model_name}'")}
    for version in state.versions:
        known = shown.get(version.model) or _create(tracking, client, model_name, version)
        shown[version.model] = known
        for name, value in standing(state, version).items():
            if known.tags.get(name) != value:
                client.set_model_version_tag(model_name, str(known.version), name, value)
    if state.versions:
        _set_aliases(client, model_name, state, shown)


def _create(tracking: Tracking, client: "MlflowClient", model_name: str, version: ModelVersion) -> "ShownVersion":
    run = show_training(tracking, client, Reference.parse(version.model))
    return client.create_model_version(
        model_name,
        source=_source(tracking, version.model),
        run_id=str(run.info.run_id),
        tags=short(origin(version)),
    )


def _source(tracking: Tracking, model: str) -> str:
    """The model's address; for a local path the identity with our own scheme, as MLflow servers refuse paths."""
    if tracking.uri.startswith("http") and isinstance(tracking.store.objects, LocalObjects):
        return f"gatehouse://local/{model}"
    return tracking.store.address_of(model)


def _set_aliases(client: "MlflowClient", model_name: str, state: State, shown: dict[str, "ShownVersion"]) -> None:
    present = {name: str(number) for name, number in client.get_registered_model(model_name).aliases.items()}
    for alias in ALIASES:
        version = state.version(state.holder(alias))
        wanted = str(shown[version.model].version) if version else ""
        if wanted and present.get(alias) != wanted:
            client.set_registered_model_alias(model_name, alias, wanted)
        elif not wanted and alias in present:
            client.delete_registered_model_alias(model_name, alias)
