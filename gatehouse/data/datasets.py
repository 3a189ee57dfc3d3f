"""Reads and writes KFP Datasets."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq


def read_dataset(path: str | Path, format: str = "") -> pa.Table:
    """Read all rows of a Dataset."""
    with open(path, "rb") as stream:
        head = stream.read(4)
    if head == b"PAR1":
        return pq.read_table(path)
    table: pa.Table = pyarrow.json.read_json(path) if head[:1] == b"{" else pyarrow.csv.read_csv(path)
    return table


def write_dataset(table: pa.Table, path: str | Path) -> None:
    """Write a table as one Parquet file."""
    pq.write_table(table, path)
