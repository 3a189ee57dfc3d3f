"""The log of a model's predictors in its store: its columns, and a part of it as an artifact.

The files are `traffic/<model>/<hour>/<digest>.parquet`, with the hour of the requests in UTC. They are written by
`gatehouse.server.prediction_log`, and each may have other features.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gatehouse.configuration.times import zoned
from gatehouse.errors import ConfigurationError
from gatehouse.metrics.tasks import TASKS
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "traffic"
"""The folder of a store with the logs of its predictors."""
HOUR = "%Y-%m-%dT%H"
KINDS = {
    "decision_time": "timestamp[us]",
    "request_id": "string",
    "request_row": "int64",
    "requested_at": "timestamp[us]",
    "unit": "string",
    "arm": "string",
    "model": "string",
    "model_version": "int64",
    "ledger": "int64",
    "latency_ms": "double",
    "error": "string",
}
"""The columns of each row of a log, besides its keys, predictions and features, with their types; times are in UTC."""
_KEPT = ("decision_time", "model", "model_version")


class NoLogError(ConfigurationError):
    """No predictor has logged such rows."""


def pseudonym(model_name: str, *values: object) -> str:
    """16 hexadecimal digits in place of values, the same for the same values of a model."""
    return hashlib.sha256(json.dumps([model_name, *values], default=str).encode()).hexdigest()[:16]


def live_files(store: ArtifactStore, name: str, since: datetime | None) -> list[str]:
    """Keys of the files of a model's log with requests from a day before `since` on, in order; all if it is None."""
    first = (since - timedelta(days=1)).astimezone(UTC).strftime(HOUR) if since else ""
    hours = [hour for hour in store.objects.folders(f"{FOLDER}/{name}") if hour >= first]
    return [key for hour in hours for key in store.objects.list(f"{FOLDER}/{name}/{hour}")]


def live_tables(store: ArtifactStore, keys: list[str]) -> "Iterator[pa.Table]":
    """The rows of each of the files. A file that was deleted meanwhile is an error."""
    import pyarrow.parquet as pq

    for key in keys:
        yield pq.read_table(io.BytesIO(store.objects.get_bytes(key)))


def collect_live(store: ArtifactStore, name: str, model: str, since: str, until: str) -> str:
    """Reference of a log with the rows that a model answered, decided in [since, until); empty ends are open.

    A row of the shadow, of an interleaved ranking, or without a prediction is left out. Raises ConfigurationError if
    there is none.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    begin, end = (zoned(key, text) if text else None for key, text in (("since", since), ("until", until)))
    outputs = {task.output for task in TASKS.values()}

    def chosen(table: pa.Table) -> pa.Table:
        others = pc.is_in(table["arm"], pa.array(["shadow", "interleaved"]))
        holds = pc.and_(pc.equal(table["model"], model), pc.invert(others))
        if not (present := outputs.intersection(table.column_names)):
            return table.slice(0, 0)
        for output in present:
            holds = pc.and_(holds, pc.is_valid(table[output]))
        time = table["decision_time"]
        for bound, compare in ((begin, pc.greater_equal), (end, pc.less)):
            holds = holds if bound is None else pc.and_(holds, compare(time, pa.scalar(bound, time.type)))
        return table.filter(holds).drop_columns([column for column in KINDS if column not in _KEPT])

    return publish_log(store, name, live_files(store, name, begin), chosen, model)


def publish_log(
    store: ArtifactStore,
    name: str,
    keys: list[str],
    chosen: "Callable[[pa.Table], pa.Table]",
    of: str,
    inputs: Mapping[str, str] = MappingProxyType({}),
    details: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Publish the chosen rows of files of a log as one artifact; equal files give an equal one.

    Raises NoLogError if there is no row of `of`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.workspace() as workspace:
        schemas, parts = list[pa.Schema](), list[Path]()
        for table in live_tables(store, keys):
            if (table := chosen(table)).num_rows:
                parts.append(workspace / f"row-{len(parts):06d}.parquet")
                schemas.append(table.schema)
                pq.write_table(table, parts[-1])
        if not parts:
            raise NoLogError(
                f"predictions: expected rows of {of} in {store.address}/{FOLDER}/{name}, found none. Start the "
                "predictor with --log."
            )
        schema, target, rows = pa.unify_schemas(schemas, promote_options="permissive"), workspace / "log.parquet", 0
        with pq.ParquetWriter(target, schema) as writer:
            for part in parts:
                table = pq.read_table(part)
                rows += table.num_rows
                writer.write_table(pa.concat_tables([schema.empty_table(), table], promote_options="permissive"))
        columns = [Column(field.name, str(field.type), field.nullable) for field in schema]
        files = {"part-00000.parquet": target}
        facts = {**details, "files": len(keys)} if details else {}
        return str(
            store.publish(
                "prediction-logs", name, {**files}, columns=columns, rows=rows, derived_from=inputs, details=facts
            )
        )
