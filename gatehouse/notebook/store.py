"""Stores and runs in a notebook: finds models, runs and artifacts, draws curves, and runs pipelines."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gatehouse.api import models, pipelines
from gatehouse.api import runs as tracked
from gatehouse.cli.run import run_project
from gatehouse.errors import ConfigurationError
from gatehouse.notebook.artifacts import Artifact, Evaluation, Listing, Model, Row, Tabular, artifact_of, framed
from gatehouse.project import place
from gatehouse.store.reference import references_in
from gatehouse.store.run import REASON
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.runs import TrackedRun


class Run(Tabular):
    """A run of a pipeline, on this machine or a cluster. Its data frame has a row for each stage."""

    def __init__(self, store: ArtifactStore, record: pipelines.Run) -> None:
        self.store, self.id, self.record = store, record.id, record

    def __repr__(self) -> str:
        return f"Run({self.id}, {self.record.state})"

    @property
    def facts(self) -> dict[str, Any]:
        """Project, pipeline, state, start, seconds, decision about the model; of a failure its error and message."""
        names = ("id", "project", "pipeline", "state", "began", "seconds", "decision", "error", "message")
        return {name: getattr(self.record, name) for name in names}

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics on the test part; empty if nothing was evaluated."""
        return self.record.metrics

    @cached_property
    def _results(self) -> dict[str, dict[str, Any]]:
        return {stage.stage: stage.result for stage in self.record.stages}

    @property
    def artifacts(self) -> list[Artifact]:
        """What its stages made or took from the memo, in their order."""
        references = dict.fromkeys(references_in(list(self._results.values())))
        return [artifact_of(self.store, reference) for reference in references]

    @property
    def model(self) -> Model:
        """The model that it trained. Raises ConfigurationError if it trained none."""
        return Model(self.store, self._made("train", "model"))

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of its model. Raises ConfigurationError if it made none."""
        return Evaluation(self.store, self._made("evaluate", "evaluation"))

    def _made(self, stage: str, field: str) -> str:
        if reference := self._results.get(stage, {}).get(field):
            return str(reference)
        raise ConfigurationError(f"Run {self.id} has no {field}: {stage} gave none. {self.record.message}".rstrip())

    def rows(self) -> Iterable[Row]:
        """How each stage ended, how long it took, and what it says."""
        return Listing(self.record.stages).rows()

    def compare(self, other: "Run") -> Listing[Row]:
        """Compare the models of both runs, and how they were made."""
        return self.evaluation.compare(other.evaluation)

    def _repr_html_(self) -> str:
        facts = (self.facts | self.metrics).items()
        rows = [{"": name, "value": value} for name, value in facts if value not in (None, "")]
        return Listing(rows)._repr_html_() + super()._repr_html_()


@dataclass(frozen=True)
class Curves(Tabular):
    """The metrics of several runs on the same axes. Its data frame has a row for each run, metric and step."""

    compared: tracked.Comparison

    def rows(self) -> Iterable[Row]:
        """A row for each value."""
        for curve in self.compared.curves:
            for point in curve.points:
                yield {"run": curve.label, "metric": curve.metric, "step": point.step, "value": point.value}

    def _repr_html_(self) -> str:
        return framed(tracked.curves_page(self.compared))


@dataclass(frozen=True)
class Store:
    """A store: what it holds, by kind. `opened` is what the rest of the library takes."""

    opened: ArtifactStore

    def models(self, name: str = "", *where: str, sort: str = "", most: int = 0) -> Listing[Model]:
        """Registered versions, of all models or one: those that meet all conditions, as `gatehouse models list`."""
        versions = models.versions(self.opened, name, where=where, sort=sort, most=most).records
        rows: dict[str, Row] = {
            version.model: {"model": version.version, "stage": version.status, "by": version.by}
            | {f"tags.{key}": value for key, value in version.tags.items()}
            | {**version.metrics}
            for version in versions
        }
        listed = (Model(self.opened, version.model) for version in versions)
        return Listing(listed, lambda model: rows[str(model.reference)])

    def model(self, text: str) -> Model:
        """The model of NAME:2, NAME@champion or a reference. Raises ConfigurationError if there is none."""
        return Model(self.opened, place.find(self.opened, text))

    def find(self, text: str) -> Artifact:
        """The artifact of a reference, whose digest may be cut where it stays unique, or of NAME:2."""
        return artifact_of(self.opened, place.find(self.opened, text))

    def artifacts(self, kind: str, name: str = "") -> Listing[Artifact]:
        """The artifacts of a kind (`snapshots`, `evaluations`, `experiments`, …), of all names or one."""
        references = self.opened.references(kind, name or None)

        def row(artifact: Artifact) -> Row:
            details = artifact.manifest.details.items()
            shown = {key: value for key, value in details if isinstance(value, str | int | float)}
            return {"reference": artifact.reference.short, "rows": artifact.manifest.rows} | shown

        return Listing((artifact_of(self.opened, reference) for reference in references), row)

    def runs(self, most: int = 50) -> Listing[Run]:
        """The newest runs of pipelines, the newest first, with the metrics of their candidates."""
        listed = (Run(self.opened, record) for record in pipelines.newest(self.opened, most))
        return Listing(listed, lambda run: run.facts | run.metrics)

    def tracked_runs(self, *where: str, sort: str = "", most: int = 100) -> Listing[TrackedRun]:
        """Trainings, trials and stages that MLflow tracks and that meet all conditions, as `gatehouse runs list`."""
        selected = tracked.search(tracked.reader(self.opened), where, sort, most)

        def row(run: TrackedRun) -> Row:
            facts = {"id": run.id, "name": run.name, "experiment": run.experiment, "status": run.status}
            return facts | run.params | run.metrics

        return Listing(selected.records, row)

    def curves(self, *runs: str, metrics: Iterable[str] = ()) -> Curves:
        """The metrics of several tracked runs, by their ids or names, on the same axes."""
        return Curves(tracked.compare(tracked.reader(self.opened), runs, list(metrics)))


def open_store(address: str = "") -> Store:
    """Open the store at an address, or of the project in a folder; by default that of the current folder.

    Raises ConfigurationError if a directory does not exist.
    """
    return Store(place.open_store(address))


def run(
    project: str | Path = "",
    pipeline: str = "training",
    *,
    store: str = "",
    until: str = "",
    reason: str = "",
    **parameters: Any,
) -> Run:
    """Run a pipeline of a project on this machine, as `gatehouse run` does, and print its steps.

    `project` is its folder, by default the current one; `store` is where everything is written, by default that of the
    project; `until` is the last stage that runs; `reason` is kept with what it makes; `parameters` are those of the
    pipeline, such as `seed=7`. A run that failed is returned too: its `record` says so. Raises ConfigurationError if
    there is no project, KeyboardInterrupt if the run was interrupted; the next one goes on from what is finished.
    """
    folder = place.project_folder(Path(project) if project else None).resolve()
    opened = ArtifactStore.open(place.store_address(store, folder))
    before = os.environ.get(REASON)
    try:
        outcome = run_project(folder, pipeline, opened, parameters, until, reason)
    finally:
        if reason:  # It is that of this run alone.
            os.environ.pop(REASON)
            os.environ.update({REASON: before} if before else {})
    if (outcome.exit_code or 0) > 128:
        raise KeyboardInterrupt
    return Run(opened, pipelines.run(opened, outcome.run))
