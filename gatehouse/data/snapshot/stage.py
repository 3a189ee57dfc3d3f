"""The snapshot stage: raw tables become immutable datasets, and one snapshot that names them all."""

from datetime import UTC, datetime

from pydantic import Field

from gatehouse.data.snapshot.spec import window_of
from gatehouse.data.sources.catalog import SourceSpec
from gatehouse.errors import ConfigurationError
from gatehouse.store.builder_code import builder_code
from gatehouse.store.identity import operational
from gatehouse.store.stage import Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore


class SnapshotRequest(StageModel):
    """A source and the part of it to take.

    Attributes:
        window: Only events of START/END; empty for all.
        location: Where the bytes are read; empty for the source's own place.
        backfill: Why rows of the earlier snapshot may change; empty if they may not.
        code: Digest of the stage's code, as the spec was compiled; empty for that of the code on disk.
        force: A nonce: if it is not empty, everything is read again.
        look: Whether it is a first look at a source, with which no later snapshot is compared.
    """

    source: SourceSpec
    window: str = ""
    location: str = operational("")
    backfill: str = operational("")
    force: str = operational("")
    look: bool = operational(False)


class SnapshotResult(StageModel):
    """A snapshot.

    Attributes:
        as_of: The newest availability time in it, ISO 8601 in UTC; empty where no table has event times.
        delivery: Warnings without those by the clock: the same in every run while the snapshot is the newest.
        unchanged: Whether the source was unchanged, so that nothing was read.
    """

    snapshot: str
    as_of: str
    rows: dict[str, int]
    rejected: dict[str, str] = Field(default_factory=dict)
    rejected_rows: dict[str, int] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    delivery: tuple[str, ...] = ()
    unchanged: bool = False


def _sensitive(request: SnapshotRequest) -> set[str]:
    return {column for table in request.source.tables.values() for column in table.sensitive}


def _reader_code(request: SnapshotRequest) -> str:
    return builder_code(getattr(request.source, "reader", ""))


@stage(
    "snapshot",
    title="Snapshot the source",
    effects=Effects(
        reads="the source, the record of its deliveries",
        writes="the record of its deliveries",
        why="Looks whether the source changed; the rows read from it are addressed by content.",
    ),
    pages={
        "snapshots": "gatehouse.data.snapshot.report:page",
        "rejected": "gatehouse.data.snapshot.report:rejected_page",
    },
    outside=_reader_code,
    sensitive=_sensitive,
)
def snapshot(request: SnapshotRequest, store: ArtifactStore) -> SnapshotResult:
    """Look at the source, read what no earlier snapshot of it holds, and record the delivery.

    Raises:
        SourceError: if the source cannot be read as declared.
        DeliveryError: if a guard refuses what was delivered.
        ConfigurationError: if the window is not START/END.
    """
    from gatehouse.data.snapshot.deliveries import Deliveries
    from gatehouse.data.snapshot.ingestion import Opened, as_of, by_the_clock, recalled, take
    from gatehouse.data.sources.catalog import open_source
    from gatehouse.runtime import limits

    window_of(request.window)
    if request.backfill and not request.backfill.strip():
        raise ConfigurationError("backfill: expected why rows of the earlier snapshot may change, found blanks.")
    with open_source(request.source, request.location, store) as source:
        state, deliveries = source.state(), Deliveries(store, request.source.name, request.window)
        code = snapshot.sources().digest + _reader_code(request)
        opened = Opened(request.source, source, state, deliveries, request.window, code, request.backfill, request.look)
        earlier = None if request.force else recalled(opened, store)
        if earlier is None:
            limits.confine_arrow()
        delivery = earlier or take(opened, store, anew=bool(request.force))
    return SnapshotResult(
        snapshot=delivery.snapshot,
        as_of=as_of(request.source, delivery.tables),
        rows={name: table.rows for name, table in delivery.tables.items()},
        rejected={name: table.rejected for name, table in delivery.tables.items() if table.rejected},
        rejected_rows={name: table.rejected_rows for name, table in delivery.tables.items() if table.rejected},
        warnings=(*delivery.warnings, *by_the_clock(request.source, delivery, datetime.now(UTC))),
        delivery=delivery.warnings,
        unchanged=earlier is not None,
    )
