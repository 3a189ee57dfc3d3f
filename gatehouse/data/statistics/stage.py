"""The measure stage: statistics of a snapshot's tables, and of the same rows in the bins of a baseline.

It is a stage below `validate`, so that a changed contract is judged without measuring again. The file `statistics.json`
is a versioned document, so that an artifact of any age can be a baseline.

    {"format": "gatehouse/statistics/1",
     "rank_error": 0.0015,
     "tables": {"flights": {"rows": 336776, "columns": {"dep_delay": {"type": "int64", "nulls": 8255, …}}}}}

Every column has `type` and `nulls`; all kinds but lists and the like have `distinct`, and `exact`, which says whether
`distinct`, quantiles, bins and listed values are exact or read out of sketches. Counts, extremes, moments and lengths
are always exact.

- Numbers: `min`, `max`, `sum`, `mean`, `std` (of a sample), `median`, `quantiles` by level, `zeros`, `not_finite`
  (doubles only; NaN and infinities count nowhere else). `edges` are the deciles of the values other than zero, and
  `counts`, one more, the rows in (-inf, e1], (e1, e2], …, (en, inf), again without zeros: a column that is mostly zero
  would else have one bin. `histogram` has bars of equal width for the eye: `edges`, one less `counts`, and the rows
  `below` and `above`. `frequent` are the most frequent of exactly counted whole numbers.
- Texts: `min`, `max`, `min_length`, `max_length`, `mean_length` (in characters), `values` (the most frequent with their
  counts; none longer than 256 characters) and `other` rows. Truth values have `values` and `other`.
- Times: `min`, `max`, `median`, `quantiles` and `histogram`, in ISO 8601.
- A sensitive column has only `type`, `nulls`, `distinct`, `exact` and `sensitive`.
"""

import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from gatehouse.data.statistics import Statistics
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import Unordered
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore

FORMAT = "gatehouse/statistics/1"
STATISTICS_FILE = "statistics.json"
REBINNED_FILE = "rebinned.json"
RANK_ERROR = 0.0015
_COUNTS = ("type", "nulls", "distinct", "exact")
ByColumn = Mapping[str, Mapping[str, Statistics]]
"""Statistics by table and column."""


@dataclass(frozen=True)
class Measurement:
    """The statistics of some tables; and those of the same rows in the bins and values of a baseline."""

    statistics: ByColumn = field(default_factory=dict)
    rebinned: ByColumn = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


def measurement(store: ArtifactStore, reference: str) -> Measurement:
    """Read an artifact of the stage `measure`; an empty reference gives an empty measurement.

    Raises ConfigurationError if its statistics are of another version, and MissingArtifactError if it holds none.
    """
    if not reference:
        return Measurement()
    body = store.read_json(reference, STATISTICS_FILE)
    statistics, rebinned = _statistics_in(body, reference), {}
    if store.manifest(reference).entry(REBINNED_FILE):
        rebinned = _statistics_in(store.read_json(reference, REBINNED_FILE), reference)
    return Measurement(statistics, rebinned, {name: table["rows"] for name, table in body["tables"].items()})


def statistics_of(store: ArtifactStore, baseline: str) -> str:
    """Reference of the statistics that a baseline, a validation, was judged by; or the baseline itself."""
    manifest = store.manifest(baseline) if baseline else None
    return manifest.derived_from.get("statistics", baseline) if manifest else ""


def document(rows: Mapping[str, int], columns: ByColumn) -> dict[str, Any]:
    """The document of some tables."""
    tables = {name: {"rows": rows[name], "columns": dict(statistics)} for name, statistics in columns.items()}
    return {"format": FORMAT, "rank_error": RANK_ERROR, "tables": tables}


def _statistics_in(body: Any, reference: str) -> dict[str, dict[str, Statistics]]:
    version = body.get("format") if isinstance(body, dict) else None
    if version != FORMAT:
        raise ConfigurationError(
            f"{reference}: expected statistics of the format {FORMAT!r}, found {version!r}. Validate that snapshot "
            "again, and take the new reference as baseline."
        )
    return {name: table["columns"] for name, table in body["tables"].items()}


def without_values(statistics: ByColumn, sensitive: Mapping[str, Collection[str]]) -> dict[str, dict[str, Statistics]]:
    """The same statistics without values of columns that are sensitive now, even if they were not when measured."""
    return {
        table: {
            column: {key: body[key] for key in _COUNTS if key in body} | {"sensitive": True}
            if column in sensitive.get(table, ())
            else body
            for column, body in columns.items()
        }
        for table, columns in statistics.items()
    }


class MeasureRequest(StageModel):
    """The tables to measure.

    Attributes:
        name: Name of the artifact.
        datasets: Datasets by the name of their table.
        sensitive: By table, columns of which no value may be kept.
        baseline: Reference of the statistics to compare with; empty for none.
    """

    name: str
    datasets: dict[str, str]
    sensitive: dict[str, Unordered] = Field({})
    baseline: str = ""


class MeasureResult(StageModel):
    """The statistics: an artifact with `statistics.json`, and `rebinned.json` where there is a baseline."""

    statistics: str


@stage("measure", title="Measure the tables", inner=True)
def measure(request: MeasureRequest, store: ArtifactStore) -> MeasureResult:
    """Measure every table in one pass, in pieces.

    Raises:
        ConfigurationError: if the baseline's statistics are of another version, or a package is not installed.
        MissingArtifactError: if the baseline holds no statistics.
    """
    try:
        from gatehouse.data.statistics.partial_pieces import measured_tables
    except ImportError as error:
        raise ConfigurationError(
            f"Statistics cannot be computed: the package {error.name} is not installed. Sketches need Python 3.11 to "
            f"3.13 (this is {platform.python_version()}) and `pip install --no-deps tfx-bsl==1.21.0`."
        ) from error
    measured = measured_tables(store, request.datasets, request.sensitive, request.baseline)
    rows = {name: table.rows for name, table in measured.items()}
    statistics = document(rows, {name: table.statistics for name, table in measured.items()})
    files = {STATISTICS_FILE: canonical_json(statistics)}
    inputs = {f"dataset {name}": dataset for name, dataset in request.datasets.items()}
    if request.baseline:
        rebinned = document(rows, {name: table.rebinned for name, table in measured.items()})
        files[REBINNED_FILE] = canonical_json(rebinned)
        inputs["baseline"] = request.baseline
    return MeasureResult(statistics=str(store.publish("statistics", request.name, files, derived_from=inputs)))
