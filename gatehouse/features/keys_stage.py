"""The stage that publishes a user's table of keys and times, to be scored instead of the label's rows."""

from typing import TYPE_CHECKING

from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "keys"


class TakeKeysRequest(StageModel):
    """Path or URL of a CSV or Parquet file, or a reference of published keys; empty for none."""

    keys: str
    name: str


class TakeKeysResult(StageModel):
    """The reference of the table; empty for none."""

    taken: str


@stage(
    "take_keys",
    title="Take the keys to score",
    effects=Effects(reads="the table", why="A file changes without its path; the same bytes give the same artifact."),
    pages={KIND: CONTENTS},
)
def take_keys(request: TakeKeysRequest, store: ArtifactStore) -> TakeKeysResult:
    """Publish a file of keys and times as it is.

    Raises ConfigurationError if there is no such file, it is neither CSV nor Parquet, or the reference is not of keys;
    MissingArtifactError if the reference is not in the store.
    """
    import fsspec

    from gatehouse.features.point_in_time.entity_file import ending_of

    if not request.keys:
        return TakeKeysResult(taken="")
    if "/sha256-" in request.keys:
        reference = Reference.parse(request.keys)
        if reference.kind != KIND:
            raise ConfigurationError(f"keys: expected a file, or a reference {KIND}/…, found {request.keys}.")
        return TakeKeysResult(taken=str(store.manifest(reference).reference))
    files, path = fsspec.core.url_to_fs(request.keys)
    if not files.isfile(path):
        raise ConfigurationError(f"keys: expected a CSV or Parquet file at {request.keys}, found none.")
    name = f"{KIND}{ending_of(path.rpartition('/')[2])}"  # Not the user's name: the same bytes give the same artifact.
    with store.workspace() as workspace:
        files.get_file(path, str(workspace / name))
        return TakeKeysResult(taken=str(store.publish(KIND, request.name, {name: workspace / name})))


def publish_keys(store: ArtifactStore, name: str, rows: "pa.Table") -> str:
    """Publish rows of keys and times, to be scored instead of the label's rows."""
    from gatehouse.data.datasets import write_dataset

    with store.workspace() as workspace:
        write_dataset(rows, workspace / f"{KIND}.parquet")
        return str(store.publish(KIND, name, {f"{KIND}.parquet": workspace / f"{KIND}.parquet"}))
