"""The operations table: Parquet files that are only added, each with the runs that ended since the previous file.

The files are `<store>/operations/stages/<n>.parquet`, n from 1. A file is created under the next number; if another
process took that number first, the missing runs are computed again. So no end of a run is in the table twice.
"""

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gatehouse.operations.metrics.rows import Row, Waited, rows_of
from gatehouse.store.run import end_number, end_of, events, recorded_runs
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.cost import Prices, prices_here

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "operations/stages"
_KINDS = {"str": "string", "float": "double", "int": "int64"}


def update(
    store: ArtifactStore,
    prices: Prices | None = None,
    waited: Mapping[str, Waited] | None = None,
    recorded: Mapping[str, set[str]] | None = None,
) -> int:
    """Add the runs that ended and are not in the table; returns their number.

    Args:
        store: The artifact store with the records of runs, and the table.
        prices: Prices of machines; by default from the environment.
        waited: How long runs and their stages waited before they began, by run id, if known.
        recorded: The names of the records of every run, if they were listed before.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    while True:
        files = sorted(store.objects.list(FOLDER))
        known = _known(store, files)
        listed, recorded = recorded or recorded_runs(store), None
        ended = [run for run, names in listed.items() if end_number(names) > known.get(run, 0)]
        if not ended:
            return 0
        rows: list[Row] = []
        for run in sorted(ended):
            found = [event for _, event in events(store, run)]
            end = end_of(store, run) or {}
            rows += rows_of(run, end, found, prices or prices_here(), (waited or {}).get(run, Waited()))
        written = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([vars(row) for row in rows], schema=_schema()), written, compression="zstd")
        if store.objects.put_bytes(f"{FOLDER}/{len(files) + 1:06d}.parquet", written.getvalue()):
            return len(ended)


def read(store: ArtifactStore, since: float = 0.0) -> list[Row]:
    """The rows of the last end of each run that began after `since` (seconds since 1970), in order of time."""
    import pyarrow.parquet as pq

    rows: list[Row] = []
    for key in sorted(store.objects.list(FOLDER)):
        table = pq.read_table(io.BytesIO(store.objects.get_bytes(key)))
        # A later version may have written columns that this version does not know.
        known = table.select([name for name in table.column_names if name in Row.__annotations__])
        rows += [Row(**body) for body in known.to_pylist()]
    last = {row.run: row.end for row in sorted(rows, key=lambda row: row.end)}
    return sorted((row for row in rows if row.began >= since and row.end == last[row.run]), key=lambda row: row.began)


def _known(store: ArtifactStore, files: Iterable[str]) -> dict[str, int]:
    """The runs in the table, each with the number of its last end; reads only two columns."""
    import pyarrow.parquet as pq

    known: dict[str, int] = {}
    for key in files:
        found = pq.read_table(io.BytesIO(store.objects.get_bytes(key)), columns=["run", "end"]).to_pydict()
        for run, end in zip(found["run"], found["end"], strict=True):
            known[run] = max(known.get(run, 0), end)
    return known


def _schema() -> "pa.Schema":
    """The columns of the table: the fields of `Row`."""
    import pyarrow as pa

    kinds = {name: str(getattr(kind, "__name__", kind)).partition(" ")[0] for name, kind in Row.__annotations__.items()}
    return pa.schema([pa.field(name, pa.type_for_alias(_KINDS[kind])) for name, kind in kinds.items()])
