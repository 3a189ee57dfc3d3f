"""Statistics of some tables, read out of the artifact that holds them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.document import REBINNED_FILE, STATISTICS_FILE, rows_in, statistics_in
from gatehouse.store.store import ArtifactStore

ByColumn = Mapping[str, Mapping[str, Statistics]]


@dataclass(frozen=True)
class Measurement:
    """What was measured.

    Attributes:
        statistics: Statistics by table and column.
        rebinned: Statistics of the same rows, counted in the bins and values of a baseline; empty without one.
        rows: Rows by table.
    """

    statistics: ByColumn = field(default_factory=dict)
    rebinned: ByColumn = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)


def measurement(store: ArtifactStore, reference: str) -> Measurement:
    """What an artifact of the stage `measure` holds; nothing for an empty reference.

    Raises:
        ConfigurationError: if its statistics are of another version.
        MissingArtifactError: if the artifact holds no statistics.
    """
    if not reference:
        return Measurement()
    body = store.read_json(reference, STATISTICS_FILE)
    rebinned = {}
    if store.manifest(reference).entry(REBINNED_FILE):
        rebinned = statistics_in(store.read_json(reference, REBINNED_FILE), reference)
    return Measurement(statistics_in(body, reference), rebinned, rows_in(body))


def statistics_of(store: ArtifactStore, baseline: str) -> str:
    """Reference of the statistics of a baseline: those that a validation judged, or the baseline itself."""
    manifest = store.manifest(baseline) if baseline else None
    return manifest.derived_from.get("statistics", baseline) if manifest else ""
