"""The measure stage: statistics of a snapshot's tables, and of the same rows in the bins of a baseline.

It is a stage below `validate`, so that a changed contract is judged without measuring again.
"""

import platform

from pydantic import Field

from gatehouse.data.statistics.measurement import REBINNED_FILE, STATISTICS_FILE, document, measurement
from gatehouse.errors import ConfigurationError
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import Unordered
from gatehouse.store.stage import StageModel, stage
from gatehouse.store.store import ArtifactStore


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
    """Measure every table in one pass.

    Raises:
        ConfigurationError: if the baseline's statistics are of another version, or a package is not installed.
        MissingArtifactError: if the baseline holds no statistics.
    """
    try:
        from gatehouse.data.statistics.table import measure_table
    except ImportError as error:
        raise ConfigurationError(
            f"Statistics cannot be computed: the package {error.name} is not installed. Sketches need Python 3.11 to "
            f"3.13 (this is {platform.python_version()}) and `pip install --no-deps tfx-bsl==1.21.0`."
        ) from error
    baseline = measurement(store, request.baseline).statistics
    measured = {
        name: measure_table(store.paths(dataset), frozenset(request.sensitive.get(name, ())), baseline.get(name, {}))
        for name, dataset in sorted(request.datasets.items())
    }
    rows = {name: table.rows for name, table in measured.items()}
    statistics = document(rows, {name: table.statistics for name, table in measured.items()})
    files = {STATISTICS_FILE: canonical_json(statistics)}
    inputs = {f"dataset {name}": dataset for name, dataset in request.datasets.items()}
    if request.baseline:
        rebinned = document(rows, {name: table.rebinned for name, table in measured.items()})
        files[REBINNED_FILE] = canonical_json(rebinned)
        inputs["baseline"] = request.baseline
    return MeasureResult(statistics=str(store.publish("statistics", request.name, files, derived_from=inputs)))
