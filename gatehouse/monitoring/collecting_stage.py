"""The stage that finds a log of predictions: from batch scoring, or Parquet files that a server wrote."""

from gatehouse.errors import ConfigurationError
from gatehouse.store.manifest import Column, Manifest
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, Effects, StageModel, stage
from gatehouse.store.store import ArtifactStore

LATEST = "latest"


class CollectRequest(StageModel):
    """The location of the log.

    Attributes:
        log: A reference of predictions, or of a snapshot with a table `predictions`; `latest` for the newest
            predictions of the champion by batch scoring; or the path or URL of a Parquet file or a folder of them;
            empty for none.
    """

    log: str
    model: str


class CollectResult(StageModel):
    """The reference of the log, if there is one, and its number of rows."""

    predictions: str
    rows: int


@stage(
    "collect_log",
    title="Take the log of predictions",
    effects=Effects(reads="the log", why="Logs grow without any parameter changing; the same bytes give the same log."),
    pages={"prediction-logs": CONTENTS},
)
def collect_log(request: CollectRequest, store: ArtifactStore) -> CollectResult:
    """Find a log of predictions, and publish it if it is outside the store.

    Raises ConfigurationError if there is no log at the given location.
    """
    if not request.log:
        return CollectResult(predictions="", rows=0)
    import fsspec
    import pyarrow.parquet as pq

    name = Reference.parse(request.model).name
    if request.log == LATEST:
        # The champion's predictions with the latest `as_of`; among equal ones, those with the most rows.
        references = (reference for reference in store.references("predictions") if reference.name == name)
        manifests = [store.manifest(reference) for reference in references]
        manifests = [manifest for manifest in manifests if manifest.derived_from.get("model") == request.model]
        if not manifests:
            raise ConfigurationError(f"predictions: expected predictions of {request.model}, found none in the store.")

        def recency(manifest: Manifest) -> tuple[str, int, str]:
            return str(manifest.details.get("as_of", "")), manifest.rows or 0, str(manifest.reference)

        reference = str(max(manifests, key=recency).reference)
    elif "/sha256-" in request.log:
        reference = str(Reference.parse(request.log))
    else:
        # Parquet files are published unchanged, in the order of their names.
        files, root = fsspec.core.url_to_fs(request.log)
        paths = [root] if files.isfile(root) else sorted(files.glob(f"{root.rstrip('/')}/**/*.parquet"))
        if not paths:
            raise ConfigurationError(f"predictions: expected Parquet files at {request.log}, found none.")
        with store.workspace() as workspace:
            files_by_name = {}
            for number, path in enumerate(paths):
                target = workspace / f"part-{number:05d}.parquet"
                files.get_file(path, str(target))
                files_by_name[target.name] = target
            rows = {part: pq.read_metadata(target).num_rows for part, target in files_by_name.items()}
            schema = pq.read_schema(next(iter(files_by_name.values())))
            columns = [Column(field.name, str(field.type), field.nullable) for field in schema]
            published = store.publish(
                "prediction-logs", name, {**files_by_name}, columns=columns, rows=sum(rows.values()), rows_per_file=rows
            )
        reference = str(published)
    return CollectResult(predictions=reference, rows=store.manifest(reference).rows or 0)
