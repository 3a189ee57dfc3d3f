"""A store in a notebook: lists and finds models, runs, snapshots, experiments and evaluations."""

from dataclasses import dataclass

from gatehouse.notebook.artifacts import Artifact, Model, artifact_of
from gatehouse.notebook.run import Run
from gatehouse.notebook.table import Listing, Row
from gatehouse.project import place
from gatehouse.registry.explanation import version_summaries
from gatehouse.store.records import read_records
from gatehouse.store.run import END, recorded_runs
from gatehouse.store.store import ArtifactStore


@dataclass(frozen=True)
class Store:
    """A store: what it holds, by kind. `opened` is what the rest of the library takes."""

    opened: ArtifactStore

    def models(self, name: str = "") -> Listing[Model]:
        """Registered versions, of all models or one, with their tags and metrics."""
        versions = version_summaries(self.opened, name)
        rows: dict[str, Row] = {
            version.model: {"model": f"{version.name}:{version.version}", "stage": version.stage, "by": version.by}
            | {f"tags.{key}": value for key, value in version.tags.items()}
            | {number.name: number.value for number in version.numbers}
            for version in versions
        }
        models = (Model(self.opened, version.model) for version in versions)
        return Listing(models, lambda model: rows[str(model.reference)])

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
        # KFP's ids are random. One record of each run says when it began, or at least when it ended.
        keys = {
            run: f"runs/{run}/{min((name for name in names if name.endswith('.1.started.json')), default=END)}"
            for run, names in recorded_runs(self.opened).items()
        }
        bodies = read_records(self.opened.objects, keys.values())
        times = {run: bodies.get(key, {}) for run, key in keys.items()}
        newest = sorted(times, key=lambda run: times[run].get("at") or times[run].get("recorded", 0.0), reverse=True)
        return Listing((Run(self.opened, run) for run in newest[:most]), lambda run: run.facts | run.metrics)


def open_store(address: str = "") -> Store:
    """Open the store at an address, or of the project in a folder; by default that of the current folder.

    Raises ConfigurationError if a directory does not exist.
    """
    return Store(place.open_store(address))
