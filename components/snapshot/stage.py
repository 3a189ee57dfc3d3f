"""The snapshot stage: raw tables become immutable datasets, and one snapshot that names them all."""

from datetime import UTC, datetime

from pydantic import Field

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.declaration import Effects, Resources
from gatehouse.components.artifacts.identity import operational
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.snapshot.window import window_of
from gatehouse.errors import ConfigurationError


class SnapshotRequest(StageModel):
    """A source and the part of it that is wanted.

    `location` says where the bytes are read, `backfill` why rows of the earlier snapshot may change; neither is part of
    what identifies the result.
    """

    source: SourceSpec
    window: str = ""
    location: str = operational("")
    backfill: str = operational("")
    code: str = operational("")
    force: str = operational("")


class IngestRequest(StageModel):
    """A source whose content is identified by `fingerprint`, the digest of its state."""

    source: SourceSpec
    fingerprint: str
    window: str = ""


class SnapshotResult(StageModel):
    """The snapshot, the newest availability time in it (ISO 8601, UTC), and the rows of its tables.

    `rejected` holds, by table, the reference of the rows that were set aside; `warnings` what the guards said.
    """

    snapshot: str
    as_of: str
    rows: dict[str, int]
    rejected: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@stage(
    "snapshot",
    title="Snapshot the source",
    effects=Effects(
        reads="the source, the record of its deliveries",
        writes="the record of its deliveries",
        why="Sees whether the source changed; what it ingests is memoised by content.",
    ),
    resources=Resources(cpu="2", memory="4G"),
)
def snapshot(request: SnapshotRequest, store: ArtifactStore) -> SnapshotResult:
    """Look at the source, ingest it where its content is not known yet, and record the delivery.

    Raises:
        SourceError: if the source cannot be read as declared.
        DeliveryError: if a guard refuses what was delivered.
        ConfigurationError: if the window is not START/END.
    """
    from gatehouse.components.snapshot.deliveries import Deliveries
    from gatehouse.components.snapshot.ingestion import Opened, Taken, judged_again, stale, take, whole
    from gatehouse.components.snapshot.sources.catalog import open_source

    window_of(request.window)
    if request.backfill and not request.backfill.strip():
        raise ConfigurationError("--backfill: expected why rows of the earlier snapshot may change, found blanks.")
    with open_source(request.source, request.location, store) as source:
        state, deliveries = source.state(), Deliveries(store, request.source.name, request.window)
        code = request.code or snapshot.code()
        opened = Opened(request.source, source, state, deliveries, request.window, code, request.backfill)
        taken: list[Taken] = []

        @stage("ingest", title="Ingest the source")
        def ingest(wanted: IngestRequest, store: ArtifactStore) -> SnapshotResult:
            """Read every table and publish it; the same content gives the same references on any machine."""
            taken.append(take(opened, store, anew=bool(request.force)))
            told = taken[-1]
            return SnapshotResult(snapshot=told.snapshot, as_of=told.as_of, rows=told.rows, rejected=told.rejected)

        wanted = IngestRequest(source=request.source, fingerprint=digest_of(dict(state)), window=request.window)
        result = ingest(wanted, store, code=request.code, force=request.force)
        if not taken and not whole(deliveries.of(result.snapshot), store):
            result = ingest(wanted, store, code=request.code, force="a part of it is gone")
        warnings = taken[-1].warnings if taken else judged_again(result.snapshot, opened, store)
        return result.model_copy(update={"warnings": (*warnings, *stale(opened, result.snapshot, datetime.now(UTC)))})
