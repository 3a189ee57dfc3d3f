"""The KFP interface of the snapshot stage."""

from typing import NamedTuple

from kfp import dsl

from gatehouse.components.artifacts.image import image_of


@dsl.component(base_image=image_of("snapshot"), packages_to_install=[], install_kfp_package=False)
def snapshot(store: str, source: str, location: str, window: str, backfill: str, code: str, force: str) -> NamedTuple(
    "Outputs", [("snapshot", str), ("as_of", str), ("delivery", list)]
):
    """Take an immutable snapshot of a source.

    Args:
        store: Address of the artifact store.
        source: The source, as canonical JSON of a SourceSpec.
        location: Read the raw tables here instead; empty for the source's own place.
        window: Only events of START/END; empty for all.
        backfill: Why rows of the earlier snapshot may change; empty where they may not.
        code: Digest of the stage's code.
        force: A nonce that runs the stage whatever the memo holds; empty for none.

    Returns:
        snapshot: Reference of the snapshot.
        as_of: The newest availability time in it.
        delivery: What the guards said of it.
    """
    from gatehouse.components.artifacts.store import ArtifactStore
    from gatehouse.components.snapshot.sources.catalog import parse_source_json
    from gatehouse.components.snapshot.stage import SnapshotRequest
    from gatehouse.components.snapshot.stage import snapshot as take

    wanted = parse_source_json(source)
    request = SnapshotRequest(
        source=wanted, window=window, location=location, backfill=backfill, code=code, force=force
    )
    result = take(request, ArtifactStore.open(store))
    return (result.snapshot, result.as_of, list(result.delivery))
