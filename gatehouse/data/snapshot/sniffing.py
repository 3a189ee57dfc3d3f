"""What a CSV that nobody declared seems to be: encoding, delimiter, types, times. The whole file is looked at.

The delimiter is the one that cuts most rows into one number of cells, whatever the others are like. Which type a column
has is told over all rows, so that what is declared here is what is read there.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.data.snapshot.column_types import NULLS, SniffedColumn, Texts, look, type_of, with_decimal
from gatehouse.data.snapshot.csv_shape import empty_lines, in_utf8, require_different, require_ending, shape_of
from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.snapshot.typed_columns import TypedColumn
from gatehouse.data.snapshot.undeclared_rows import UndeclaredRows
from gatehouse.errors import DeclarationError
from gatehouse.store.database import connect, out_of_memory

USUAL_LIMIT: float = TableSpec.model_fields["reject_limit"].default
_ROOM = 1.5
_DEFAULT_NULLS = ("", "NA")
_DELIVERED = "delivered_at"


@dataclass(frozen=True)
class Sniffed:
    """A file.

    Attributes:
        encoding: Of its text.
        delimiter: Between its cells; empty for Parquet, which has types.
        decimal: Of its numbers.
        nulls: Texts that stand for a missing value.
        columns: In the order of the file.
        rows: How many rows it has, without those that are uneven.
        uneven: Rows that have more or fewer cells than the header; they would be rejected.
        event_time: The column whose times order the rows; empty for none.
        missing_as: Those of `nulls` that occur in a CSV, in which every missing value is one of them.
        repeated: Rows whose cells, as they are written, are those of an earlier row.
        misfit_rows: Rows of a CSV with a value of another type than its column; they would be rejected too.
        empty_lines: Of a CSV of one column, empty lines between its rows, which are no rows.
    """

    encoding: str
    delimiter: str
    decimal: str
    nulls: tuple[str, ...]
    columns: tuple[SniffedColumn, ...]
    rows: int
    uneven: int = 0
    event_time: str = ""
    missing_as: tuple[str, ...] = ()
    repeated: int = 0
    misfit_rows: int = 0
    empty_lines: int = 0

    def ordered_by(self, time: str) -> "Sniffed":
        """The file with another column for its time, also of numbers since 1970; with none, its times are texts."""
        if time:
            columns = (
                replace(one, kind=ColumnType.timestamp, form=one.epoch) if one.name == time and one.epoch else one
                for one in self.columns
            )
            return replace(self, event_time=time, columns=tuple(columns))
        texts = (
            SniffedColumn(one.name, ColumnType.string, missing=one.missing, left_out=one.left_out)
            if one.kind is ColumnType.timestamp
            else one
            for one in self.columns
        )
        return replace(self, event_time="", columns=tuple(texts))

    @property
    def kept(self) -> tuple[SniffedColumn, ...]:
        """The columns that a snapshot has."""
        return tuple(column for column in self.columns if not column.left_out)

    @property
    def delivered(self) -> str:
        """The column that a file without times gets for its time: delivered_at, or with a number if it has one."""
        names = {column.name.lower() for column in self.columns}
        numbered = (f"{_DELIVERED}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain((_DELIVERED,), numbered) if name not in names)

    @property
    def with_misfits(self) -> tuple[SniffedColumn, ...]:
        """The columns of a snapshot that some rows are rejected for."""
        return tuple(column for column in self.kept if column.misfits and not column.almost)

    @property
    def reject_limit(self) -> float:
        """The share of rows that may be rejected: the usual one, two rows, or half as many again as the file has."""
        rows = max(self.rows + self.uneven, 1)
        # Fewer columns may have misfits than in the file, where its times are read as texts.
        rejected = self.uneven + min(self.misfit_rows, sum(one.misfits for one in self.with_misfits))
        limit = max(USUAL_LIMIT, min(1.0, max(2, _ROOM * rejected) / rows))
        return math.ceil(limit * 10**4) / 10**4


def sniff(path: Path, nulls: Sequence[str] = ()) -> Sniffed:
    """Look at a CSV file, also a gzipped one, or at Parquet. The first column of times orders the rows.

    Args:
        path: The file.
        nulls: Texts that stand for a missing value in a CSV, beside those that do so often.

    Raises:
        DeclarationError: if it is no CSV with a header, and no Parquet, or if it is Parquet and `nulls` are named.
    """
    parquet = path.suffix.lower() == ".parquet" and path.is_file()
    if parquet and nulls:
        raise DeclarationError(
            f"--nulls: expected a CSV, found {path.name}: in Parquet a missing value is a null. Leave out --nulls, or "
            f"write a null in place of {', '.join(map(repr, nulls))} at the source."
        )
    found = _parquet(path) if parquet else _csv(path, nulls)
    return replace(found, event_time=next((one.name for one in found.kept if one.kind is ColumnType.timestamp), ""))


def _parquet(path: Path) -> Sniffed:
    try:
        with pq.ParquetFile(path) as file:
            require_different(file.schema_arrow.names, path.name)
            columns, rows = [TypedColumn.of(found) for found in file.schema_arrow], file.metadata.num_rows
            for batch in file.iter_batches():
                for column, cells in zip(columns, batch.columns, strict=True):
                    column.look(cells)
    except (pa.ArrowInvalid, OSError) as error:
        raise DeclarationError(f"{path}: is not intact Parquet: {error}. Fetch it again.") from error
    told = _named([column.told() for column in columns])
    found = Sniffed("utf-8", "", ".", _DEFAULT_NULLS, told, rows, repeated=_repeated(path))
    return replace(found, misfit_rows=sum(one.misfits for one in found.with_misfits))


def _named(columns: Sequence[SniffedColumn]) -> tuple[SniffedColumn, ...]:
    """Columns, of which those without a name are left out of a snapshot."""
    return tuple(one if one.name else replace(one, left_out="it has no name") for one in columns)


def _repeated(path: Path) -> int:
    """How many rows of a Parquet file are equal to an earlier one."""
    query = "SELECT (SELECT count(*) FROM cells) - (SELECT count(*) FROM (SELECT DISTINCT * FROM cells))"
    with connect() as connection:
        connection.read_parquet(str(path)).create_view("cells")
        try:
            return int(connection.execute(query).fetchall()[0][0])
        except duckdb.OutOfMemoryException as error:
            raise out_of_memory(error, f"Reading {path.name}") or error from error
        except duckdb.Error:  # Its words may quote a value.
            raise DeclarationError(
                f"{path.name}: expected values that DuckDB can read, found one that it cannot, such as a time far "
                "beyond the year 9999 or a text that is no UTF-8. Correct it at the source."
            ) from None


def _csv(path: Path, wanted: Sequence[str]) -> Sniffed:
    require_ending(path)
    if path.is_file() and not path.stat().st_size:
        raise DeclarationError(f"{path.name}: expected a header and rows below it, found an empty file.")
    with in_utf8(path) as (plain, encoding):
        delimiter, header = shape_of(plain, path.name)
        file = UndeclaredRows(plain, path.name, delimiter)
        found = _told(file, header, encoding, wanted)
        empty = empty_lines(plain) if len(header) == 1 else 0
        return replace(found, misfit_rows=_misfit_rows(found, file), empty_lines=empty)


def _told(file: UndeclaredRows, header: Sequence[str], encoding: str, wanted: Sequence[str]) -> Sniffed:
    """What the cells of a file tell, all of them looked at as texts."""
    columns = [Texts(name) for name in header]
    marks, digests, uneven = pa.array({*NULLS, *wanted}), [], 0
    with connect() as connection:
        for raw in file.read(dict.fromkeys(header, ColumnType.string)):
            uneven += raw.rejected.num_rows if raw.rejected is not None else 0
            digests.append(_digests(connection, raw.table, header))
            for column, cells in zip(columns, raw.table.columns, strict=True):
                look(column, cells.combine_chunks(), marks)
    rows = sum(map(len, digests))
    if not rows:
        raise DeclarationError(f"{file.name}: expected rows below the header, found none.")
    told = [type_of(column) for column in columns]
    commas = file.delimiter != "," and any(one.decimal == "," and not one.doubtful for one in told)
    decimal = "," if commas else "."
    sure = any(one.kind is ColumnType.double and one.decimal == decimal and not one.doubtful for one in told)
    told = [with_decimal(one, decimal, file.delimiter, sure=sure) for one in told]
    first: dict[str, str] = {}  # column that makes a text a missing value, by text
    for column, one in zip(columns, told, strict=True):
        if one.kind is not ColumnType.string:
            first = dict.fromkeys(column.nulls, column.name) | first
    nulls = (*_DEFAULT_NULLS, *sorted({*first, *wanted} - set(_DEFAULT_NULLS)))
    missing_as = tuple(null for null in nulls if any(column.nulls[null] for column in columns))
    told = [
        replace(
            one,
            missing=sum(column.nulls[null] for null in nulls),
            note=_lost(column, {null: first.get(null, "") for null in missing_as if null not in ("", *wanted)})
            if one.kind is ColumnType.string
            else one.note,
        )
        for column, one in zip(columns, told, strict=True)
    ]
    repeated = rows - len(np.unique(np.concatenate(digests)))
    return Sniffed(
        encoding, file.delimiter, decimal, nulls, _named(told), rows, uneven, missing_as=missing_as, repeated=repeated
    )


def _lost(column: Texts, nulls: Mapping[str, str]) -> str:
    """Which texts of a text column are read as missing values, though they may be values of it.

    Args:
        column: The column.
        nulls: The column of numbers or times that has such a text too, by text; empty where none has it.
    """
    found = [
        f"{column.nulls[null]:,} {null!r} {'is' if column.nulls[null] == 1 else 'are'} read as missing, "
        + (f"as in column {other}" if other else "as `nulls` has it by default")
        for null, other in nulls.items()
        if column.nulls[null]
    ]
    return "; ".join([*found, "write values that are not missing in another way in the file"] if found else [])


def _digests(connection: duckdb.DuckDBPyConnection, texts: pa.Table, header: Sequence[str]) -> np.ndarray:
    """A hash of the cells of each row that have a name, shape (rows,)."""
    cells = texts.rename_columns([f"column{index}" for index in range(len(header))])
    named = [f"column{index}" for index, column in enumerate(header) if column] or cells.column_names
    found = connection.from_arrow(cells).project(f"hash({', '.join(named)})").fetchnumpy()
    return next(iter(found.values()))


def _misfit_rows(told: Sniffed, file: UndeclaredRows) -> int:
    """How many rows have a value of another type, in whatever columns."""
    misfits = told.with_misfits
    if len(misfits) < 2:
        return sum(one.misfits for one in misfits)
    times = {one.name: one.form for one in misfits if one.form}
    again = replace(file, decimal=told.decimal, nulls=told.nulls).read({one.name: one.kind for one in misfits}, times)
    return int(sum(raw.rejected.num_rows for raw in again if raw.rejected is not None)) - told.uneven


def source_of(sniffed: Sniffed, path: Path, name: str, delivered: str) -> dict[str, Any]:
    """The declaration that reads a file as it was told, as `source` of a project has it.

    A file without times gets one that all its rows have, in a column of its own.

    Args:
        sniffed: What was told.
        path: The file.
        name: Of the source and its table.
        delivered: The time that all rows have where they have none of their own, ISO 8601 in UTC.

    Raises:
        DeclarationError: if every column is left out.
    """
    columns = {column.name: str(column.kind) for column in sniffed.kept}
    if not columns:
        why = "; ".join(f"{column.name or 'a column'}: {column.left_out}" for column in sniffed.columns)
        raise DeclarationError(f"{path.name}: expected a column that a snapshot can hold, found none ({why}).")
    zone = {"time_zone": "UTC"} if any(column.naive for column in sniffed.kept) else {}
    table: dict[str, Any] = {"member": path.name, "on_invalid": "reject", "reject_limit": sniffed.reject_limit}
    if sniffed.event_time:
        table |= {"columns": columns, "event_time": sniffed.event_time}
    else:
        time = sniffed.delivered
        table |= {"columns": {time: "timestamp", **columns}, "event_time": time, "delivered": delivered}
    defaults = {"delimiter": "," if sniffed.delimiter else "", "decimal": ".", "encoding": "utf-8"}
    table |= {key: found for key, default in defaults.items() if (found := getattr(sniffed, key)) != default}
    if times := {column.name: column.form for column in sniffed.kept if column.form}:
        table["times"] = times
    if len(sniffed.kept) < len(sniffed.columns):
        table["guards"] = {"new_column": "accept"}  # what is left out
    nulls = {"nulls": list(sniffed.nulls)} if sniffed.nulls != _DEFAULT_NULLS else {}
    return {"name": name, "kind": "files", "path": str(path.parent), **zone, **nulls, "tables": {name: table}}
