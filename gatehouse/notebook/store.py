"""A store in a notebook: lists and finds models, runs, snapshots, experiments and evaluations."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from gatehouse.notebook.artifacts import Artifact, Evaluation, Experiment, Model, artifact_of
from gatehouse.notebook.run import Run
from gatehouse.notebook.table import Comparison, Listing, Row, Tabular, moment
from gatehouse.project import place
from gatehouse.registry.search import SearchRequest, search
from gatehouse.store.run import recorded_runs
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.query import parse
from gatehouse.tracking.runs import SYSTEM, RunReader, TrackedRun, differing, labels_of, measured, tracked_in

Kind = TypeVar("Kind", bound=Artifact)


class Tracked(Tabular):
    """A run in MLflow: `run` holds its parameters, metrics and tags. Its data frame holds the course of its metrics."""

    def __init__(self, reader: RunReader, run: TrackedRun) -> None:
        """Take a run of a reader."""
        self.reader, self.run, self.title = reader, run, run.name

    def rows(self) -> Iterator[Row]:
        """A row for each value of a metric, with step and time."""
        for metric, points in self.reader.history(self.run, sorted(self.run.metrics)).items():
            for point in points:
                yield {"metric": metric, "step": point.step, "value": point.value, "at": moment(point.at)}

    def compare(self, other: "Tracked") -> Comparison:
        """The last metrics of both, and what differs in how they were made; as `gatehouse runs compare`."""
        runs = [self.run, other.run]
        names = labels_of(runs)
        numbers: list[Row] = [
            {"metric": name, **dict(zip(names, values, strict=True))} for name, values in measured(runs).items()
        ]
        changes: list[Row] = [
            {"name": name, **dict(zip(names, values, strict=True))} for name, values in differing(runs)[0].items()
        ]
        return Comparison(" and ".join(names), numbers, changes)


class Store:
    """A store: what it holds, by kind. `opened` is the store that the rest of the library takes."""

    def __init__(self, opened: ArtifactStore) -> None:
        """Take an open store."""
        self.opened = opened

    def __repr__(self) -> str:
        return f"Store({self.opened.address!r})"

    def models(self, query: str = "", trained_on: Sequence[str] = ()) -> Listing[Model]:
        """Registered versions, all or those that a query finds, as `gatehouse models search` does."""
        references = tuple(str(place.find(self.opened, text)) for text in trained_on)
        return Listing(
            (
                Model(self.opened, found.model),
                {"model": f"{found.name}:{found.version}", "stage": found.stage, "by": found.by}
                | {number.name: number.value for number in found.numbers},
            )
            for found in search(SearchRequest(query=query, trained_on=references), self.opened)
        )

    def model(self, text: str) -> Model:
        """The model of NAME:2, NAME@champion or a reference. Raises ConfigurationError if there is none."""
        return Model(self.opened, place.find(self.opened, text))

    def find(self, text: str) -> Artifact:
        """The artifact of a reference, whose digest may be cut where it stays unique, or of NAME:2."""
        return artifact_of(self.opened, place.find(self.opened, text))

    def artifacts(self, kind: str, name: str = "") -> Listing[Artifact]:
        """The artifacts of a kind, such as `snapshots`, in order of their references."""
        return self._listed(kind, name, Artifact)

    def snapshots(self, name: str = "") -> Listing[Artifact]:
        """The snapshots."""
        return self._listed("snapshots", name, Artifact)

    def evaluations(self, name: str = "") -> Listing[Evaluation]:
        """The evaluations, of all models or one."""
        return self._listed("evaluations", name, Evaluation)

    def experiments(self, name: str = "") -> Listing[Experiment]:
        """The published experiments, of all models or one."""
        return self._listed("experiments", name, Experiment)

    def runs(self, limit: int = 50) -> Listing[Run]:
        """The newest runs of pipelines, the newest first."""
        newest = sorted(recorded_runs(self.opened), reverse=True)[:limit]
        return Listing((run, run.facts) for run in (Run(self.opened, name) for name in newest))

    def run(self, run: str) -> Run:
        """The run with this id. Raises ConfigurationError if the store has no record of it."""
        return Run(self.opened, run)

    def tracked(self, query: str = "", experiment: str = "") -> Listing[Tracked]:
        """The runs in MLflow, stages and trials too, all or those that a query finds, as `gatehouse runs search`."""
        reader = self._reader if not experiment else tracked_in(self.opened, experiment)
        names = ("id", "name", "experiment", "status")
        return Listing(
            (
                Tracked(reader, run),
                {name: getattr(run, name) for name in names}
                | {"started": moment(run.started)}
                | {name: value for name, value in run.metrics.items() if not name.startswith(SYSTEM)},
            )
            for run in parse(query).select(list(reader.runs()))
        )

    @cached_property
    def _reader(self) -> RunReader:
        return tracked_in(self.opened)

    def _listed(self, kind: str, name: str, of: type[Kind]) -> Listing[Kind]:
        return Listing(
            (
                of(self.opened, reference),
                {"reference": reference.short, "rows": manifest.rows}
                | {key: value for key, value in manifest.details.items() if isinstance(value, str | int | float)},
            )
            for reference in self.opened.references(kind, name or None)
            for manifest in [self.opened.manifest(reference)]
        )


def open_store(address: str = "") -> Store:
    """Open the store at an address, or of the project in a folder; by default that of the current folder.

    Raises ConfigurationError if a directory does not exist.
    """
    return Store(place.open_store(address))
