"""Takes a snapshot of a table in memory, such as a KFP Dataset: a delivery that is always whole."""

import re
from collections.abc import Sequence

import pyarrow as pa

from gatehouse.data.datasets import write_dataset
from gatehouse.data.snapshot.sniffing import typed_column
from gatehouse.data.snapshot.spec import Guards
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.files import FileTable, FolderSource
from gatehouse.errors import ConfigurationError, DeclarationError, NoRowsError
from gatehouse.store.store import ArtifactStore

_WARNS, _ACCEPTS = ("new_column", "retyped_column", "duplicate_part"), ("duplicate_rows", "late", "rewrite")
_GUARDS = Guards.model_validate(dict.fromkeys(_WARNS, "warn") | dict.fromkeys(_ACCEPTS, "accept"))


def snapshot_table(
    store: ArtifactStore,
    table: pa.Table,
    name: str,
    keys: Sequence[str] = (),
    event_time: str = "",
    sensitive: Sequence[str] = (),
    compare: bool = True,
) -> SnapshotResult:
    """Take a snapshot of one table; equal rows give the same reference, with `keys` in any order.

    With the event time, `keys` must differ from row to row. A column of lists and the like is left out, with a warning.
    Other warnings compare with the earlier snapshot of this name; without `compare` none does, then or later.
    Raises ConfigurationError if there is no such column, or the event time is no timestamp. Raises DeclarationError if
    rows share their keys, NoRowsError if there are none.
    """
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigurationError(f"name: expected letters, digits, dots, _ and -, found {name!r}.")
    order = (*keys, *((event_time,) if event_time and keys else ()))
    columns = [typed_column(field.name, field.type) for field in table.schema]
    kinds = {column.name: column.kind for column in columns if not column.left_out}
    if missing := [column for column in (*keys, event_time, *sensitive) if column and column not in kinds]:
        raise ConfigurationError(f"{name}: expected the columns {', '.join(missing)}, found {', '.join(kinds)}.")
    if event_time and kinds[event_time] != "timestamp":
        raise ConfigurationError(f"event_time: expected times in {event_time}, found {kinds[event_time]}.")
    repeated = table.num_rows - table.group_by(order).aggregate([]).num_rows if keys else 0
    if repeated or not table.num_rows:
        rows = f"{repeated:,} that repeat {', '.join(order)}" if repeated else "none"
        kind = DeclarationError if repeated else NoRowsError
        own = ", each with keys of its own" if keys else ""
        raise kind(f"{name}: expected rows{own}, found {rows}. Correct the Dataset.")
    sorting = {"order_by": order, "sort_on_ingest": bool(keys), "event_time": event_time}
    with store.workspace() as workspace:
        file = workspace / f"{name}.parquet"
        write_dataset(table, file)
        declared = FileTable(member=file.name, columns=kinds, sensitive=tuple(sensitive), guards=_GUARDS, **sorting)
        source = FolderSource(name=name, path=str(workspace), tables={name: declared})
        return snapshot(SnapshotRequest(source=source, look=not compare), store)
