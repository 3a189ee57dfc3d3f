"""Objects that a notebook shows: rows as tables and data frames, and artifacts, each with its page."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gatehouse.api.records import fields_of
from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.registry.explanation import DIFFERENT_ROWS, changes_between, compare_numbers
from gatehouse.registry.ledger import Ledger, ModelVersion
from gatehouse.reports.contents import rendered
from gatehouse.store.database import quoted
from gatehouse.store.manifest import Manifest
from gatehouse.store.querying import queried, tables_in
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.tuning.trial import beside

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    from gatehouse.training.predictor import Predictor

Row = Mapping[str, Any]
Item = TypeVar("Item")
_FRAME = "width:100%;height:640px;border:1px solid #ddd"
_MOST_ROWS = 60


class Tabular(ABC):
    """An artifact with rows: a data frame, and a table in a notebook."""

    @abstractmethod
    def rows(self) -> Iterable[Row]:
        """The rows, as dictionaries by column."""

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a data frame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows()))

    def to_arrow(self) -> "pa.Table":
        """The rows as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_pandas(self.to_pandas(), preserve_index=False)

    def _repr_html_(self) -> str:
        return self.to_pandas().to_html(index=False, max_rows=_MOST_ROWS, border=0, na_rep="")


class Listing(list[Item], Tabular, Generic[Item]):
    """A list of things, with a row for each: by default its fields."""

    def __init__(self, items: Iterable[Item], row: Callable[[Item], Row] = fields_of) -> None:
        super().__init__(items)
        self._row = row

    def rows(self) -> Iterable[Row]:
        """A row for each thing."""
        return map(self._row, self)


def framed(page: str) -> str:
    """A page in a frame that runs no script."""
    return f'<iframe sandbox srcdoc="{escape(page)}" style="{_FRAME}"></iframe>'


class Artifact(Tabular):
    """An artifact. A notebook shows the page that `gatehouse report` draws, in a frame that runs no script."""

    def __init__(self, store: ArtifactStore, reference: Reference | str) -> None:
        self.store, self.reference = store, Reference.parse(str(reference))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reference.short})"

    def _repr_html_(self) -> str:
        return framed(rendered(self.store, self.reference).read_text(encoding="utf-8"))

    @cached_property
    def manifest(self) -> Manifest:
        """Files, columns, number of rows, configuration and details."""
        return self.store.manifest(self.reference)

    @property
    def made_from(self) -> "dict[str, Artifact]":
        """The artifacts that it was derived from, by their role."""
        return {role: artifact_of(self.store, parent) for role, parent in self.manifest.derived_from.items()}


class Tables(Artifact):
    """An artifact of one or several tables."""

    @property
    def tables(self) -> list[str]:
        """The names of its tables; a single table has an empty name."""
        return list(tables_in(self.store, self.reference))

    def rows(self) -> Iterable[Row]:
        """The rows of a single table."""
        rows: list[Row] = self.to_arrow().to_pylist()
        return rows

    def to_arrow(self, table: str = "", columns: Sequence[str] = ()) -> "pa.Table":
        """A table, all columns or some; a value of a sensitive column is `***`.

        Raises ConfigurationError if there is no such table.
        """
        table = table or (self.tables[0] if len(self.tables) == 1 else "")
        if table not in self.tables:
            expected = f"expected the name of one of its tables ({', '.join(self.tables)}), found {table!r}"
            raise ConfigurationError(f"{self.reference.short}: {expected}.")
        view = f"artifact.{quoted(table)}" if table else "artifact"
        with queried(self.store, {"artifact": self.reference}, {}, partial(sensitive_columns, self.store)) as opened:
            return opened.sql(f"SELECT {', '.join(map(quoted, columns)) or '*'} FROM {view}").to_arrow_table()

    def to_pandas(self, table: str = "", columns: Sequence[str] = ()) -> "pd.DataFrame":
        """A table as a data frame, as `to_arrow` gives it."""
        frame: pd.DataFrame = self.to_arrow(table, columns).to_pandas()
        return frame


class Evaluation(Artifact):
    """An evaluation of a candidate. Its data frame has the metrics of each model, with their intervals."""

    @cached_property
    def verdict(self) -> dict[str, Any]:
        """The gate's decision: `verdict`, and each of its `rules`."""
        return dict(self.store.read_json(self.reference, "verdict.json"))

    def rows(self) -> Iterable[Row]:
        """A row for each model and metric."""
        entry = self.manifest.entry("uncertainty.json")
        intervals = self.store.read_json(self.reference, "uncertainty.json")["intervals"] if entry else {}
        for model, metrics in self.store.read_json(self.reference, "metrics.json").items():
            for metric, value in metrics.items():
                low, high = intervals.get(model, {}).get(metric) or (None, None)
                yield {"model": model, "metric": metric, "value": value, "low": low, "high": high}

    def compare(self, other: "Evaluation") -> Listing[Row]:
        """The numbers of both candidates, then what differs in data, features, configuration, code and environment."""
        same, pairs = compare_numbers(self.store, str(self.reference), str(other.reference))
        models = [evaluation.manifest.derived_from["model"] for evaluation in (self, other)]
        rows: list[Row] = [{"part": "warning", "name": DIFFERENT_ROWS}] if pairs and not same else []
        for pair in pairs:
            first, second = (number and number.value for number in (pair.first, pair.second))
            rows.append({"part": "metric", "name": pair.name, "first": first, "second": second})
        return Listing([*rows, *map(fields_of, changes_between(self.store, *models))])


class Model(Artifact):
    """A model. Its data frame has its metrics on the test part, with their intervals."""

    @property
    def registered(self) -> ModelVersion:
        """The registry's entry: version, tags, evaluation. Raises ConfigurationError if it does not."""
        for version in Ledger(self.store, self.reference.name).state().versions:
            if version.model == str(self.reference):
                return version
        raise ConfigurationError(f"{self.reference.short} is not registered: expected a model that the gate let pass.")

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation with which it was registered."""
        return Evaluation(self.store, self.registered.evaluation)

    def rows(self) -> Iterable[Row]:
        """A row for each metric."""
        return (row for row in self.evaluation.rows() if row["model"] == "candidate")

    def predictor(self) -> "Predictor":
        """The model, ready to score Arrow tables (`predict`) and rows (`predict_online`)."""
        from gatehouse.training.predictor import Predictor

        return Predictor.load(self.store, self.reference)

    def predict(self, features: "pa.Table | pd.DataFrame") -> "npt.NDArray[Any]":
        """Predictions for rows of features, shape (rows,), or (rows, classes) for several classes."""
        import pyarrow as pa

        table = features if isinstance(features, pa.Table) else pa.Table.from_pandas(features, preserve_index=False)
        return self.predictor().predict(table)

    def compare(self, other: "Model") -> Listing[Row]:
        """The numbers of both, then what differs in how they were made, as `gatehouse models compare` has it."""
        return self.evaluation.compare(other.evaluation)


class Experiment(Artifact):
    """A published experiment. Its data frame has a row for each trial."""

    def rows(self) -> Iterable[Row]:
        """Number, state, model, objectives and parameters of each trial."""
        for trial in self.store.read_json(self.reference, "trials.json"):
            about = {"trial": trial["number"], "state": trial["state"], "model": trial.get("model")}
            yield beside(about | (trial.get("values") or {}), trial["parameters"])


def artifact_of(store: ArtifactStore, reference: Reference | str) -> Artifact:
    """The artifact of a reference, as what its kind is."""
    kinds: dict[str, type[Artifact]] = {"evaluations": Evaluation, "experiments": Experiment, "models": Model}
    return kinds.get(Reference.parse(str(reference)).kind, Tables)(store, reference)
