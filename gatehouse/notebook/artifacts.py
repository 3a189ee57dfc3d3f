"""Artifacts in a notebook: each shows its page, gives its tables, and is compared with another."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gatehouse.configuration.yaml_lines import nearest
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.notebook.table import Comparison, Row, Tabular, framed, table_of
from gatehouse.registry.comparison import CompareRequest, Pair, changes_between, compare, compare_numbers
from gatehouse.registry.explanation import ExplainRequest, Explanation, explain
from gatehouse.registry.ledger import Ledger
from gatehouse.reports.rendering import rendered
from gatehouse.store.database import quoted
from gatehouse.store.manifest import Manifest
from gatehouse.store.querying import queried, tables_in
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.reports.experiment_view import ExperimentView

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from gatehouse.training.scoring.predictor import Predictor


class Artifact(Tabular):
    """An artifact of a store. A notebook shows the page that `gatehouse report` draws."""

    def __init__(self, store: ArtifactStore, reference: Reference | str) -> None:
        """Take an artifact by its reference."""
        self.store, self.reference = store, Reference.parse(str(reference))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.reference)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Artifact) and other.reference == self.reference

    def __hash__(self) -> int:
        return hash(self.reference)

    def _repr_html_(self) -> str:
        return framed(rendered(self.store, self.reference).read_text(encoding="utf-8"))

    @cached_property
    def manifest(self) -> Manifest:
        """Files, columns, number of rows, configuration and details."""
        return self.store.manifest(self.reference)

    @property
    def made_from(self) -> dict[str, "Artifact"]:
        """The artifacts that it was derived from, by their role."""
        return {role: artifact_of(self.store, parent) for role, parent in self.manifest.derived_from.items()}

    @property
    def tables(self) -> list[str]:
        """The names of its tables; a single table has an empty name."""
        return list(tables_in(self.store, self.reference))

    def rows(self) -> Iterable[Row]:
        """The rows of its table."""
        rows: list[Row] = self.to_arrow().to_pylist()
        return rows

    def to_arrow(self, table: str = "", columns: Sequence[str] = ()) -> pa.Table:
        """A table of the artifact, all columns or some.

        A value of a sensitive column is `***`. Raises ConfigurationError if there is no such table or column.
        """
        tables = tables_in(self.store, self.reference)
        name = table or (next(iter(tables)) if len(tables) == 1 else "")
        if name not in tables:
            raise ConfigurationError(
                f"{self.reference.short}: expected the name of one of its tables ({', '.join(tables)}), found "
                f"{table!r}{nearest(table, list(tables))}."
            )
        known = [column.name for column in tables[name].columns]
        if wrong := [column for column in columns if column not in known]:
            raise ConfigurationError(
                f"{self.reference.short}: it has no column {wrong[0]!r}{nearest(wrong[0], known)}: expected some of "
                f"{', '.join(known)}."
            )
        view = f"artifact.{quoted(name)}" if name else "artifact"
        hidden = partial(sensitive_columns, self.store)
        with queried(self.store, {"artifact": self.reference}, {}, hidden) as connection:
            return connection.sql(f"SELECT {', '.join(map(quoted, columns)) or '*'} FROM {view}").to_arrow_table()

    def to_pandas(self, table: str = "", columns: Sequence[str] = ()) -> "pd.DataFrame":
        """As `to_arrow`, as a data frame."""
        frame: pd.DataFrame = self.to_arrow(table, columns).to_pandas()
        return frame


class _OfRows(Artifact):
    """An artifact whose data frame is not a table in its files."""

    def rows(self) -> Iterable[Row]:
        """The rows of its data frame."""
        raise NotImplementedError

    def to_arrow(self, table: str = "", columns: Sequence[str] = ()) -> pa.Table:
        """Its rows as an Arrow table, all columns or some."""
        made = table_of(self.rows())
        return made.select(list(columns)) if columns else made


class Evaluation(_OfRows):
    """An evaluation: the metrics of candidate, champion and baseline on the test part, and the verdict of the gate."""

    @property
    def verdict(self) -> str:
        """What the gate says: pass, refused or inconclusive."""
        return str(self.manifest.details["verdict"])

    @property
    def reasons(self) -> list[str]:
        """Why."""
        return list(self.store.read_json(self.reference, "verdict.json").get("reasons", ()))

    @property
    def metrics(self) -> dict[str, float]:
        """The candidate's metrics by name."""
        return dict(self._metrics["candidate"])

    @property
    def model(self) -> "Model":
        """The candidate."""
        return Model(self.store, self.manifest.derived_from["model"])

    @cached_property
    def _metrics(self) -> dict[str, dict[str, float]]:
        metrics: dict[str, dict[str, float]] = self.store.read_json(self.reference, "metrics.json")
        return metrics

    def rows(self) -> Iterator[Row]:
        """A row for each model and metric, with the interval of its value."""
        entry = self.manifest.entry("uncertainty.json")
        intervals = self.store.read_json(self.reference, "uncertainty.json")["intervals"] if entry else {}
        for model, metrics in self._metrics.items():
            for metric, value in metrics.items():
                low, high = intervals.get(model, {}).get(metric) or (None, None)
                yield {"model": model, "metric": metric, "value": value, "low": low, "high": high}

    def compare(self, other: "Evaluation") -> Comparison:
        """Compare the numbers of both candidates, and how they were made."""
        same, pairs = compare_numbers(self.store, str(self.reference), str(other.reference))
        changes = changes_between(self.store, *(str(item.model.reference) for item in (self, other)))
        names = (self.reference.short, other.reference.short)
        return _comparison(names, pairs, same, [change.model_dump() for change in changes])


class Model(_OfRows):
    """A model, registered or not. Its data frame holds the numbers of its evaluation."""

    @cached_property
    def version(self) -> int | None:
        """Its number in the registry; None if it is not registered."""
        versions = Ledger(self.store, self.reference.name).state().versions
        return next((entry.version for entry in versions if entry.model == str(self.reference)), None)

    @property
    def name(self) -> str:
        """NAME:2, or its shortened reference if it is not registered."""
        return f"{self.reference.name}:{self.version}" if self.version else self.reference.short

    @property
    def stage(self) -> str:
        """What the registry says of it, such as champion; empty if it is not registered."""
        state = Ledger(self.store, self.reference.name).state()
        version = state.version(self.version) if self.version else None
        return state.stage_of(version) if version else ""

    @cached_property
    def evaluation(self) -> Evaluation:
        """The evaluation with which it was registered, else one of it. Raises ConfigurationError if there is none."""
        version = Ledger(self.store, self.reference.name).state().version(self.version or 0)
        if version is not None:
            return Evaluation(self.store, version.evaluation)
        for reference in self.store.references("evaluations"):
            if self.store.manifest(reference).derived_from.get("model") == str(self.reference):
                return Evaluation(self.store, reference)
        raise ConfigurationError(f"{self.reference.short}: no evaluation of it is in {self.store.address}.")

    @property
    def metrics(self) -> dict[str, float]:
        """Its metrics on the test part, by name."""
        return self.evaluation.metrics

    def rows(self) -> Iterator[Row]:
        """A row for each metric."""
        for row in self.evaluation.rows():
            if row["model"] == "candidate":
                yield {name: value for name, value in row.items() if name != "model"}

    def predictor(self) -> "Predictor":
        """The model, ready to score tables (`predict`) and rows (`predict_online`)."""
        from gatehouse.training.scoring.predictor import Predictor

        return Predictor.load(self.store, self.reference)

    def predict(self, features: "pa.Table | pd.DataFrame") -> "npt.NDArray[Any]":
        """Predictions for rows of features, shape (rows,), or (rows, classes) for several classes."""
        table = features if isinstance(features, pa.Table) else pa.Table.from_pandas(features, preserve_index=False)
        return self.predictor().predict(table)

    def explain(self) -> Explanation:
        """Which data, code, configuration, environment and seeds made it, who and why; for a registered version."""
        return explain(ExplainRequest(model=self.name), self.store)

    def compare(self, other: "Model") -> Comparison:
        """Every number of both, and what changed; as `gatehouse models compare` if both are registered."""
        if not (self.version and other.version):
            return self.evaluation.compare(other.evaluation)
        made = compare(CompareRequest(first=self.name, second=other.name), self.store)
        changes = [change.model_dump() for change in made.changes]
        return _comparison((made.first, made.second), made.numbers, made.same_test, changes)


class Experiment(_OfRows):
    """A published experiment. Its data frame holds the trials."""

    @cached_property
    def view(self) -> ExperimentView:
        """Search space, objectives and trials."""
        files = (self.store.read_json(self.reference, name) for name in ("experiment.json", "trials.json"))
        return ExperimentView(self.reference.name, *files)

    @property
    def best(self) -> dict[str, Any]:
        """The parameters of the best trial; empty if no trial succeeded."""
        return dict(self.view.best["parameters"]) if self.view.best else {}

    def rows(self) -> Iterator[Row]:
        """A row for each trial: number, state, objectives, parameters, reference of the model."""
        for trial in self.view.trials:
            values = {objective.metric: objective.of(trial) for objective in self.view.objectives}
            parameters = {name: trial["parameters"].get(name) for name in self.view.settings}
            about = {"trial": trial["number"], "state": trial["state"]}
            yield about | values | parameters | {"model": trial.get("model")}


_KINDS: dict[str, Callable[[ArtifactStore, Reference | str], Artifact]] = {
    "evaluations": Evaluation,
    "experiments": Experiment,
    "models": Model,
}


def artifact_of(store: ArtifactStore, reference: Reference | str) -> Artifact:
    """The artifact of a reference, as what its kind is."""
    parsed = Reference.parse(str(reference))
    return _KINDS.get(parsed.kind, Artifact)(store, parsed)


def _comparison(names: tuple[str, str], pairs: Sequence[Pair], same_test: bool, changes: Sequence[Row]) -> Comparison:
    numbers = [
        {"metric": pair.name} | {name: side.value if side else None for name, side in zip(names, sides, strict=True)}
        for pair in pairs
        for sides in [(pair.first, pair.second)]
    ]
    warning = "" if same_test else "These numbers are of different test rows: they do not say which model is better."
    return Comparison(" and ".join(names), numbers, changes, warning)
