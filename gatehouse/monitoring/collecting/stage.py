"""The stage that finds a log of predictions: one that batch scoring made, or Parquet files that a server wrote."""

from gatehouse.errors import ConfigurationError
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.stage import CONTENTS, Effects, Resources, StageModel, stage
from gatehouse.store.store import ArtifactStore

LATEST = "latest"


class CollectRequest(StageModel):
    """The location of the log.

    Attributes:
        log: A reference of predictions, or of a snapshot with a table `predictions`; `latest` for the newest
            predictions of the champion by batch scoring; or the path or URL of a Parquet file or a folder of them;
            empty for none.
        model: The champion.
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
    resources=Resources(cpu="1", memory="4G"),
    pages={"prediction-logs": CONTENTS},
)
def collect_log(request: CollectRequest, store: ArtifactStore) -> CollectResult:
    """Find a log of predictions, and publish it if it is outside the store.

    Raises:
        ConfigurationError: if there is no log at the given location.
        MissingArtifactError: if a reference is not in the store.
    """
    if not request.log:
        return CollectResult(predictions="", rows=0)
    if request.log == LATEST:
        found = _latest(store, request.model)
    elif "/sha256-" in request.log:
        found = str(Reference.parse(request.log))
    else:
        found = _published(store, request.log, Reference.parse(request.model).name)
    return CollectResult(predictions=found, rows=store.manifest(found).rows or 0)


def _latest(store: ArtifactStore, model: str) -> str:
    """The champion's predictions with the latest `as_of`; among equal ones, those with the most rows."""
    name = Reference.parse(model).name
    manifests = (store.manifest(each) for each in store.references("predictions") if each.name == name)
    mine = [each for each in manifests if each.derived_from.get("model") == model]
    if not mine:
        raise ConfigurationError(
            f"predictions: expected predictions of {model}, found none in {store.address}. Run the scoring pipeline, "
            "or leave the parameter empty to let the champion score the newest rows."
        )
    newest = max(mine, key=lambda each: (str(each.details.get("as_of", "")), each.rows or 0, str(each.reference)))
    return str(newest.reference)


def _published(store: ArtifactStore, place: str, name: str) -> str:
    """Publish Parquet files unchanged, in the order of their names."""
    import fsspec
    import pyarrow.parquet as pq

    files, root = fsspec.core.url_to_fs(place)
    paths = [root] if files.isfile(root) else sorted(files.glob(f"{root.rstrip('/')}/**/*.parquet"))
    if not paths:
        raise ConfigurationError(f"predictions: expected Parquet files at {place}, found none.")
    with store.workspace() as workspace:
        taken = {}
        for number, path in enumerate(paths):
            target = workspace / f"part-{number:05d}.parquet"
            files.get_file(path, str(target))
            taken[target.name] = target
        rows = {part: pq.read_metadata(target).num_rows for part, target in taken.items()}
        schema = pq.read_schema(next(iter(taken.values())))
        columns = [Column(each.name, str(each.type), each.nullable) for each in schema]
        published = store.publish(
            "prediction-logs", name, {**taken}, columns=columns, rows=sum(rows.values()), rows_per_file=rows
        )
    return str(published)
