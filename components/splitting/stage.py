"""The split stage: a training set becomes index files of a train, a validation and a test part."""

from gatehouse.components.artifacts.manifest import Column
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.stage import StageModel, stage
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.errors import LeakageError


class SplitRequest(StageModel):
    """A training set and the boundaries that divide it."""

    training_set: str
    spec: SplitSpec


class SplitResult(StageModel):
    """The split and the rows of each part; `gap` counts the rows that are in none."""

    split: str
    rows: dict[str, int]


@stage("split", distributions=("numpy", "pyarrow"))
def split(request: SplitRequest, store: ArtifactStore) -> SplitResult:
    """Divide a training set by decision time.

    The artifact holds `train.parquet`, `validation.parquet` and `test.parquet`, each with the row numbers (`row`,
    int64, ascending) of its part.

    Raises:
        LeakageError: if the parts are not in order of time, or a part is empty or has one class only, or the training
            set decides the same thing twice.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gatehouse.components.splitting.time_order import PARTS, check_time_order, divide

    reference = Reference.parse(request.training_set)
    manifest = store.manifest(reference)
    label, keys = manifest.details["label"], manifest.details["entity_keys"]
    columns = list(dict.fromkeys([*keys, "decision_time", "label_time", label]))
    table = pq.ParquetDataset(store.paths(reference)).read(columns=columns)
    repeated = table.num_rows - table.group_by([*keys, "decision_time"]).aggregate([]).num_rows
    if repeated:
        raise LeakageError(
            f"{reference}: {repeated} rows repeat the entity keys {keys} and decision time of another row."
        )
    moments = {name: table[name].to_numpy().astype("datetime64[us]") for name in ("decision_time", "label_time")}
    labels = table[label].to_numpy()
    parts = divide(moments["decision_time"], moments["label_time"], request.spec)
    check_time_order(moments["decision_time"], moments["label_time"], labels, parts)
    rows = {name: len(parts[name]) for name in PARTS}
    rows["gap"] = table.num_rows - sum(rows.values())
    with store.workspace() as workspace:
        files = {f"{name}.parquet": workspace / f"{name}.parquet" for name in PARTS}
        for name in PARTS:
            pq.write_table(pa.table({"row": parts[name]}), files[f"{name}.parquet"], compression="zstd")
        published = store.publish(
            "splits",
            reference.name,
            files,
            columns=[Column("row", "int64", False)],
            rows=sum(rows[name] for name in PARTS),
            rows_per_file={f"{name}.parquet": rows[name] for name in PARTS},
            derived_from={"training_set": reference},
            configuration=request.spec.model_dump(mode="json"),
            details={
                "rows": rows,
                "label_rate": {name: round(float(np.mean(labels[parts[name]])), 6) for name in PARTS},
                "first": {name: str(moments["decision_time"][parts[name]].min()) for name in PARTS},
                "last": {name: str(moments["decision_time"][parts[name]].max()) for name in PARTS},
            },
        )
    return SplitResult(split=str(published), rows=rows)
