"""Typed files, Parquet and Arrow IPC, in runs of rows that the file's own groups and batches give."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from gatehouse.data.sources.raw_file import RawFile
from gatehouse.data.sources.runs import runs
from gatehouse.errors import SourceError

ROWS_PER_PART = 131_072


def row_runs(name: str, file: RawFile) -> Iterator[pa.Table]:
    """A file's rows in runs of `ROWS_PER_PART`; the last one is shorter. One batch and one run are in memory.

    Raises:
        SourceError: if the file is gone or not intact.
    """
    kind = "Parquet" if file.suffix == ".parquet" else "an Arrow file"
    try:
        with _opened(file) as (schema, batches):
            none = True
            for run in runs((pa.Table.from_batches([batch], schema) for batch in batches), ROWS_PER_PART):
                none = False
                yield run
            if none:
                yield schema.empty_table()
    except (FileNotFoundError, PermissionError) as error:
        raise SourceError(
            f"Table {name}: {file.name} cannot be read: {error.strerror}. Run again when it is."
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"Table {name}: {file.name} is not intact {kind}: {error}. Fetch it again.") from error


@contextmanager
def _opened(file: RawFile) -> Iterator[tuple[pa.Schema, Any]]:
    with file.open() as stream:
        if file.suffix == ".parquet":
            # Without pre-buffering a row group of any size is read page by page.
            parquet = pq.ParquetFile(stream, pre_buffer=False, buffer_size=2**20)
            yield parquet.schema_arrow, parquet.iter_batches(batch_size=16_384, use_threads=False)
        elif _is_ipc_file(stream):
            reader = pa.ipc.open_file(stream)
            yield reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))
        else:
            flow = pa.ipc.open_stream(stream)
            yield flow.schema, flow


def _is_ipc_file(stream: Any) -> bool:
    magic = stream.read(6)
    stream.seek(0)
    return bool(magic == b"ARROW1")
