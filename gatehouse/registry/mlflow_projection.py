"""The ledger as MLflow shows it: registered model, versions with lineage and tags, and the aliases."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.state import ALIASES, ModelVersion, State
from gatehouse.reports.advice import advised
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import Point, Tracking, log, short
from gatehouse.tracking.provenance import lineage_tags
from gatehouse.tracking.training import show_training

if TYPE_CHECKING:
    from mlflow import MlflowClient

MODEL, EVALUATION, VERDICT = "gatehouse.model", "gatehouse.evaluation", "gatehouse.verdict"


def origin_tags(version: ModelVersion) -> dict[str, str]:
    """Facts that never change: the model, and all artifacts it was made from."""
    return lineage_tags(version.lineage) | {MODEL: version.model}


def status_tags(state: State, version: ModelVersion) -> dict[str, str]:
    """The stage of a version, the evaluation that it was registered with, and its tags."""
    status = version.ended or " ".join(state.aliases_of(version.version)) or state.stage_of(version)
    tags = {"gatehouse.version": str(version.version), "gatehouse.status": status, EVALUATION: version.evaluation}
    return tags | dict(version.tags)


def candidate_metrics(store: ArtifactStore, evaluation: str) -> dict[str, float]:
    """The candidate's metrics on the test rows, by the names that are shown."""
    metrics = store.read_json(evaluation, "metrics.json")
    return {f"test_{name}": float(value) for name, value in metrics["candidate"].items()}


@dataclass(frozen=True)
class InMlflow:
    """MLflow as a place that shows ledgers; MLflow is imported only for writing."""

    place: Tracking
    title = "MLflow"

    @contextmanager
    def writing(self) -> Iterator[Callable[[Ledger, State, int], None]]:
        """A connection: a function that updates MLflow to a ledger's state, given how many records it shows already."""
        with self.place.client() as client:
            yield partial(_show, self.place, client)


def _show(tracking: Tracking, client: "MlflowClient", ledger: Ledger, state: State, shown: int) -> None:
    """Log new verdicts to the runs that trained the candidates; create missing versions; set tags and aliases."""
    for number, verdict in state.verdicts:
        if number <= shown:
            continue
        run = show_training(tracking, client, Reference.parse(verdict.subject.model))
        if (run.data.tags.get(EVALUATION), run.data.tags.get(VERDICT)) != (verdict.evaluation, verdict.summary):
            metrics = candidate_metrics(tracking.store, verdict.evaluation)
            points: list[Point] = [(name, value, 0) for name, value in metrics.items()]
            tags = {VERDICT: verdict.summary, "gatehouse.reasons": "\n".join(advised(verdict.reasons))}
            log(client, run, points=points, tags=tags | {EVALUATION: verdict.evaluation})
    if not state.versions:
        return

    name = ledger.model_name
    if name not in {model.name for model in client.search_registered_models(f"name = '{name}'")}:
        client.create_registered_model(name, tags={"gatehouse.store": tracking.store.address})
    entries = {entry.tags.get(MODEL, ""): entry for entry in client.search_model_versions(f"name = '{name}'")}
    for version in state.versions:
        if version.model not in entries:
            run = show_training(tracking, client, Reference.parse(version.model))
            source = tracking.store.address_of(version.model)
            if tracking.uri.startswith("http") and isinstance(tracking.store.objects, LocalObjects):
                source = f"gatehouse://local/{version.model}"  # MLflow servers refuse local paths.
            entries[version.model] = client.create_model_version(
                name, source=source, run_id=str(run.info.run_id), tags=short(origin_tags(version))
            )
        entry = entries[version.model]
        for tag, value in status_tags(state, version).items():
            if entry.tags.get(tag) != value:
                client.set_model_version_tag(name, str(entry.version), tag, value)

    aliases = {alias: str(number) for alias, number in client.get_registered_model(name).aliases.items()}
    for alias in ALIASES:
        holder = state.version(state.holder(alias))
        number_there = str(entries[holder.model].version) if holder else ""
        if number_there and aliases.get(alias) != number_there:
            client.set_registered_model_alias(name, alias, number_there)
        elif not number_there and alias in aliases:
            client.delete_registered_model_alias(name, alias)
