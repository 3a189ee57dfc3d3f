"""The snapshot stage: raw tables become immutable datasets, and one snapshot that names them all."""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.snapshot.sources.catalog import SourceSpec
from gatehouse.components.snapshot.window import window_of

if TYPE_CHECKING:
    from gatehouse.components.snapshot.ingestion import AtHand


class SnapshotRequest(StageModel):
    """A source and the part of it that is wanted.

    `location` says where the bytes are read, `backfill` why rows of the earlier snapshot may change; neither is part of
    what identifies the result.
    """

    source: SourceSpec
    window: str = ""
    location: str = Field("", exclude=True)
    backfill: str = Field("", exclude=True)
    code: str = Field("", exclude=True)
    force: str = Field("", exclude=True)


class IngestRequest(StageModel):
    """A source whose content is identified by `fingerprint`, the digest of its state.

    `at_hand` is what the stage works with and what its result does not depend on.
    """

    source: SourceSpec
    fingerprint: str
    window: str = ""
    at_hand: Any = Field(None, exclude=True)


class SnapshotResult(StageModel):
    """The snapshot, the newest availability time in it (ISO 8601, UTC), and the rows of its tables.

    `rejected` holds, by table, the reference of the rows that were set aside; `warnings` what the guards said.
    """

    snapshot: str
    as_of: str
    rows: dict[str, int]
    rejected: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@stage("snapshot")
def snapshot(request: SnapshotRequest, store: ArtifactStore) -> SnapshotResult:
    """Look at the source, ingest it where its content is not known yet, and record the delivery.

    Raises:
        SourceError: if the source cannot be read as declared.
        DeliveryError: if a guard refuses what was delivered.
        ConfigurationError: if the window is not START/END.
    """
    from gatehouse.components.snapshot.deliveries import Deliveries
    from gatehouse.components.snapshot.ingestion import AtHand
    from gatehouse.components.snapshot.sources.catalog import open_source

    window_of(request.window)
    with open_source(request.source, request.location, store) as source:
        state = source.state()
        deliveries = Deliveries(store, request.source.name)
        at_hand = AtHand(source, state, deliveries, request.code or ingest.code(), request.backfill)
        wanted = IngestRequest(
            source=request.source, fingerprint=digest_of(dict(state)), window=request.window, at_hand=at_hand
        )
        result = ingest(wanted, store, code=request.code, force=request.force)
        return _recorded(result, request, at_hand, store)


@stage("ingest", distributions=("duckdb", "pyarrow"))
def ingest(request: IngestRequest, store: ArtifactStore) -> SnapshotResult:
    """Read every table and publish it; the same content gives the same references on any machine."""
    from gatehouse.components.snapshot.ingestion import take

    taken = take(request.source, request.window, request.fingerprint, request.at_hand, store)
    return SnapshotResult(snapshot=taken.snapshot, as_of=taken.as_of, rows=taken.rows, rejected=taken.rejected)


def _recorded(
    result: SnapshotResult, request: SnapshotRequest, at_hand: "AtHand", store: ArtifactStore
) -> SnapshotResult:
    """Remember the delivery; one whose content was known is held against the newest one first."""
    from gatehouse.components.snapshot.ingestion import delivered, judge_again

    if not at_hand.tables:
        judge_again(result.snapshot, request.source, request.window, at_hand, store)
    if at_hand.tables:
        at_hand.deliveries.add(delivered(result.snapshot, request.window, at_hand))
    return result.model_copy(update={"warnings": tuple(at_hand.warnings)})
