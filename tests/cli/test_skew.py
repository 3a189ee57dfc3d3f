"""`gatehouse data skew` as a person runs it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from gatehouse.cli.data import app
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore


def _publish(store: ArtifactStore, kind: str, values: np.ndarray) -> str:
    table = pa.table({"delay": values, "carrier": ["AA"] * len(values)})
    with store.workspace() as workspace:
        pq.write_table(table, workspace / "part.parquet")
        columns = [Column(field.name, str(field.type)) for field in table.schema]
        files = {"part.parquet": workspace / "part.parquet"}
        rows = {"part.parquet": table.num_rows}
        return str(store.publish(kind, "flights", files, columns=columns, rows=table.num_rows, rows_per_file=rows))


def test_skew_is_said_and_ends_with_one(store: ArtifactStore) -> None:
    generator = np.random.default_rng(0)
    trained = _publish(store, "training-sets", generator.normal(size=3000))
    alike = _publish(store, "datasets", generator.normal(size=3000))
    moved = _publish(store, "datasets", generator.normal(2.0, size=3000))
    same = CliRunner().invoke(app, ["skew", trained, alike, "--store", store.address])
    assert (same.exit_code, same.output.splitlines()[0]) == (0, "pass: 3,000 logged rows against 3,000 trained")
    other = CliRunner().invoke(app, ["skew", trained, moved, "--store", store.address])
    assert other.exit_code == 1 and "delay" in other.output and other.output.startswith("fail")
    ignored = CliRunner().invoke(app, ["skew", trained, moved, "--store", store.address, "--ignore", "delay"])
    assert ignored.exit_code == 0
