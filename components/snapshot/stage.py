"""The snapshot stage: raw tables become immutable datasets, and one snapshot that names them all."""

from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from gatehouse.components.artifacts.canonical import canonical_json
from gatehouse.components.artifacts.manifest import Column, Shard
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.snapshot.sources.files import FileTable as TableSpec
from gatehouse.errors import ConfigurationError, SourceError


class SnapshotRequest(StageModel):
    """A source and the part of it that is wanted.

    `location` says where the bytes are read; it is not part of what identifies the result.
    """

    source: SourceSpec
    window: str = ""
    location: str = Field("", exclude=True)
    code: str = Field("", exclude=True)
    force: str = Field("", exclude=True)


class IngestRequest(StageModel):
    """A source whose content is identified by `fingerprint`."""

    source: SourceSpec
    fingerprint: str
    window: str = ""
    location: str = Field("", exclude=True)


class SnapshotResult(StageModel):
    """The snapshot, the newest availability time in it (ISO 8601, UTC), and the rows of its tables."""

    snapshot: str
    as_of: str
    rows: dict[str, int]


@stage("snapshot")
def snapshot(request: SnapshotRequest, store: ArtifactStore) -> SnapshotResult:
    """Look at the source, and ingest it where its content is not known yet.

    Raises:
        SourceError: if the source cannot be read as declared.
        ConfigurationError: if the window is not START/END.
    """
    from gatehouse.components.snapshot.archive import observe

    window_of(request.window)
    wanted = IngestRequest(
        source=request.source,
        fingerprint=observe(request.source, request.location),
        window=request.window,
        location=request.location,
    )
    return ingest(wanted, store, code=request.code, force=request.force)


@stage("ingest", distributions=("pyarrow",))
def ingest(request: IngestRequest, store: ArtifactStore) -> SnapshotResult:
    """Read every table and publish it; the same content gives the same references on any machine."""
    from gatehouse.components.snapshot.archive import member_files

    source = request.source
    datasets: dict[str, Reference] = {}
    with store.workspace() as workspace:
        files = member_files(source, request.location, store, workspace)
        for name, spec in source.tables.items():
            datasets[name] = _publish_table(name, spec, files[name], request, store, workspace)
    manifests = {name: store.manifest(reference) for name, reference in datasets.items()}
    marks = [manifest.details["watermark"] for manifest in manifests.values() if manifest.details["watermark"]]
    if not marks:
        raise SourceError(f"Source {source.name}: no table states its event_time, so the snapshot has no watermark.")
    rows = {name: manifest.rows or 0 for name, manifest in manifests.items()}
    described = {"fingerprint": request.fingerprint, "window": request.window, "rows": rows}
    reference = store.publish(
        "snapshots",
        source.name,
        {"source.json": canonical_json(described)},
        derived_from=datasets,
        details={"as_of": max(marks), "window": request.window},
    )
    return SnapshotResult(snapshot=str(reference), as_of=max(marks), rows=rows)


def _publish_table(
    name: str, spec: TableSpec, path: Path, request: IngestRequest, store: ArtifactStore, workspace: Path
) -> Reference:
    import pyarrow.compute as pc

    from gatehouse.components.snapshot.tables import read_table, within, write_shards

    table = read_table(name, path, spec, request.source.nulls)
    window = window_of(request.window)
    if window and spec.event_time:
        table = within(table, spec.event_time, *window)
        if table.num_rows == 0:
            raise SourceError(
                f"Table {name}: no row has its {spec.event_time} within {request.window}. Widen the window."
            )
    watermark = ""
    if spec.event_time:
        newest = pc.max(table[spec.event_time]).as_py()
        if newest is None:
            raise SourceError(
                f"Table {name}: column {spec.event_time} is null in every row, so it states no event time."
            )
        watermark = (newest + spec.availability_lag).isoformat()
    directory = workspace / f"parquet-{name}"
    directory.mkdir()
    shards = write_shards(table, directory)
    return store.publish(
        "datasets",
        name,
        {file: written for file, (written, _) in shards.items()},
        columns=[Column(field.name, str(field.type), field.nullable) for field in table.schema],
        rows=table.num_rows,
        rows_per_file={file: count for file, (_, count) in shards.items()},
        shards=[Shard(file, 0, count) for file, (_, count) in shards.items()],
        details={"watermark": watermark},
    )


def window_of(text: str) -> tuple[datetime, datetime] | None:
    """Start and end (exclusive) of a window `START/END` in ISO 8601; times without a zone are UTC.

    Raises:
        ConfigurationError: if it has another form, or ends before it starts.
    """
    if not text:
        return None
    try:
        start, end = (_utc(datetime.fromisoformat(part)) for part in text.split("/"))
    except ValueError:
        raise ConfigurationError(
            f"window: expected START/END in ISO 8601, e.g. 2013-01-01/2013-03-01, found {text!r}."
        ) from None
    if start >= end:
        raise ConfigurationError(f"window: expected a start before its end, found {text!r}.")
    return start, end


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
