"""The measure stage: statistics of a snapshot's tables, and of the same rows in the bins of a baseline.

It is a stage of its own below `validate`, so that a contract that changed is judged without measuring again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.declaration import Resources
from gatehouse.components.artifacts.identity import operational
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.validation.spec import StatisticsSpec
from gatehouse.components.validation.statistics import Statistics
from gatehouse.components.validation.statistics.document import STATISTICS_FILE, document, rows_in, statistics_in
from gatehouse.errors import ConfigurationError

if TYPE_CHECKING:
    from gatehouse.components.validation.statistics.table import MeasuredTable

REBINNED_FILE = "rebinned.json"
ByColumn = Mapping[str, Mapping[str, Statistics]]


class MeasureRequest(StageModel):
    """Datasets by the name of their table, columns by table of which no value may be kept, and a baseline or nothing.

    A baseline is any artifact with a `statistics.json`. `statistics` says where to compute and changes no result.
    """

    name: str
    datasets: dict[str, str]
    sensitive: dict[str, tuple[str, ...]] = Field({})
    baseline: str = ""
    statistics: StatisticsSpec = operational(StatisticsSpec())


class MeasureResult(StageModel):
    """The statistics: an artifact with `statistics.json`, and `rebinned.json` where there is a baseline."""

    statistics: str


@stage("measure", title="Measure the tables", resources=Resources(cpu="2", memory="4G"))
def measure(request: MeasureRequest, store: ArtifactStore) -> MeasureResult:
    """Measure every table in one pass.

    Raises:
        ConfigurationError: if the baseline holds no statistics of this version, or a package is not installed.
    """
    compute = _on_beam if request.statistics.engine == "beam" else _in_process
    try:
        measured = compute(store, request, baseline_of(store, request.baseline))
    except ImportError as error:
        raise ConfigurationError(
            f"Statistics cannot be computed {request.statistics.engine}: the package {error.name} is not installed. "
            "Install the sketches with `pip install --no-deps -r locks/sketches.lock`, and for beam gatehouse[beam]."
        ) from error
    rows = {name: table.rows for name, table in measured.items()}
    files = {STATISTICS_FILE: canonical_json(document(rows, {name: one.statistics for name, one in measured.items()}))}
    if request.baseline:
        rebinned = document(rows, {name: one.rebinned for name, one in measured.items()})
        files[REBINNED_FILE] = canonical_json(rebinned)
    inputs = {f"dataset {name}": dataset for name, dataset in request.datasets.items()} | (
        {"baseline": request.baseline} if request.baseline else {}
    )
    return MeasureResult(statistics=str(store.publish("statistics", request.name, files, derived_from=inputs)))


def _in_process(store: ArtifactStore, request: MeasureRequest, baseline: ByColumn) -> "dict[str, MeasuredTable]":
    from gatehouse.components.validation.statistics.table import measure_table

    return {
        name: measure_table(
            store.paths(dataset),
            frozenset(request.sensitive.get(name, ())),
            baseline.get(name, {}),
            request.statistics.threads,
        )
        for name, dataset in sorted(request.datasets.items())
    }


def _on_beam(store: ArtifactStore, request: MeasureRequest, baseline: ByColumn) -> "dict[str, MeasuredTable]":
    from gatehouse.components.validation.statistics.beam import measure_on_beam

    return measure_on_beam(store, request.datasets, request.sensitive, baseline, request.statistics.options)


def baseline_of(store: ArtifactStore, reference: str) -> ByColumn:
    """Statistics by table and column of a baseline; empty where there is none.

    Raises:
        ConfigurationError: if it holds no statistics of this version.
    """
    return statistics_in(store.read_json(reference, STATISTICS_FILE), reference) if reference else {}


def rows_of(store: ArtifactStore, reference: str) -> dict[str, int]:
    """Rows by table of a baseline whose statistics `baseline_of` could read."""
    return rows_in(store.read_json(reference, STATISTICS_FILE))


def statistics_of(store: ArtifactStore, measured: MeasureResult) -> tuple[ByColumn, ByColumn]:
    """Statistics by table and column, and those of the same rows in the baseline's bins; empty without a baseline."""
    found, reference = [], measured.statistics
    held = {entry.path for entry in store.manifest(reference).files}
    for file in (STATISTICS_FILE, REBINNED_FILE):
        found.append(statistics_in(store.read_json(reference, file), reference) if file in held else {})
    return found[0], found[1]
