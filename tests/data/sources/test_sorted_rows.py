"""Sorting on ingest: one order for the same rows however they come, in bounded memory, and nothing lost beside them."""

import itertools
from functools import partial
from pathlib import Path

import pyarrow as pa

from gatehouse.data.snapshot.parts import logical_digest
from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.sources.base import Part, Raw
from gatehouse.data.sources.row_runs import sorted_parts
from tests.data.snapshot.conftest import HEADER, Events, rows

SORTED = {"sort_on_ingest": True}
SPEC = TableSpec(columns={"value": ColumnType.double, "name": ColumnType.string}, sort_on_ingest=True)


def test_the_order_of_rows_that_differ_in_the_sign_of_zero_is_fixed(tmp_path: Path) -> None:
    values = [(0.0, "a"), (-0.0, "a"), (-0.0, "b"), (None, "a")]
    digests = set()
    for number, order in enumerate(itertools.permutations(values)):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = pa.table({"value": pa.array([v for v, _ in order], pa.float64()), "name": [n for _, n in order]})
        parts = sorted_parts([Part("", partial(Raw, table))], SPEC, folder, 10)
        digests.add(logical_digest(pa.concat_tables([part.read().table for part in parts])))
    assert len(digests) == 1


def test_a_sorted_table_is_the_same_with_nan_or_null(events: Events) -> None:
    snapshots = []
    for missing in ("nan", ""):
        events.table = {"sort_on_ingest": True, "order_by": ["value"], "guards": {"nan": "accept"}}
        events.write(HEADER + rows(0, 600).replace(",50.0\n", ",\n").replace(",100.0\n", f",{missing}\n"))
        snapshots.append(events.take(backfill="the same").snapshot)
    assert snapshots[0] == snapshots[1]


def test_rejected_rows_of_sorted_tables_keep_their_place(events: Events) -> None:
    import pyarrow.parquet as pq

    events.table = SORTED | {"on_invalid": "reject"}
    events.write(HEADER + rows(0, 600).replace(",100.0\n", ",many\n").replace(",250.0\n", ",many\n"))
    taken = events.take()
    paths = events.store.paths(taken.rejected["events"])
    assert [row for path in paths for row in pq.read_table(path)["place"].to_pylist()] == [
        "events.csv, line 202",
        "events.csv, line 502",
    ]
    assert taken.rows == {"events": 598}
