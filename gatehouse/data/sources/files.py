"""Files as a source: in a folder, under any address, or inside a pinned archive of the package index."""

import codecs
from datetime import datetime
from typing import Literal

from pydantic import Field, field_validator, model_validator

from gatehouse.data.snapshot.spec import ColumnType, SourceBase, TableSpec
from gatehouse.data.sources.base import Url
from gatehouse.store.identity import Unordered, operational

PACKED = (".gz", ".zip")
CSV = (".csv", ".tsv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
TYPED = (".parquet", ".arrow", ".feather", ".ipc")
KINDS = (*CSV, *JSON_LINES, *TYPED)


class FileTable(TableSpec):
    """One table in one or more files. Its rows stand in the order of the files' names, then of the rows in each."""

    member: str = Field(
        description="Path inside the folder or archive, or a glob such as events/*.parquet: .csv and .jsonl (also .gz "
        "and .zip), .parquet, .arrow or .feather."
    )
    delimiter: str = Field(
        ",", pattern=r"^[ -~\t]$", description='Between the cells of a CSV: one character, e.g. ";", "|" or "\\t".'
    )
    decimal: Literal[".", ","] = Field(".", description="Decimal sign of numbers in a CSV.")
    percent: Unordered = Field(
        (), description="Double columns of a CSV whose numbers have a percent sign: 12% is 0.12."
    )
    encoding: str = Field("utf-8", description="Of a CSV or of JSON lines, e.g. cp1252, latin-1 or utf-16.")

    delivered: datetime | None = Field(
        None,
        description="The time, in UTC, that all rows get in the column `event_time`, if the files have no such column.",
    )

    @model_validator(mode="after")
    def _fits_its_files(self) -> "FileTable":
        if self.delivered and (not self.event_time or self.event_time in self.times):
            raise ValueError("delivered: expected event_time to name its column, and times not to list it")
        if self.delimiter in ('"', self.decimal) or self.delimiter.isalnum():
            raise ValueError(f"delimiter: expected no quote, letter, digit or decimal sign, found {self.delimiter!r}")
        if others := [column for column in self.percent if self.columns.get(column) is not ColumnType.double]:
            raise ValueError(f"percent: expected columns declared as double, found {', '.join(others)}")
        if self.order_by and not self.sort_on_ingest:
            raise ValueError("order_by: rows of files stand in the files' order; to have another, add sort_on_ingest")
        return self

    def in_files(self) -> "FileTable":
        """The declaration of the columns that the files have."""
        if not self.delivered:
            return self
        columns = {name: kind for name, kind in self.columns.items() if name != self.event_time}
        return self.model_copy(update={"columns": columns, "event_time": "", "delivered": None})

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding(cls, name: str) -> str:
        try:
            "".encode(name)  # refuses what is no encoding of text
            return codecs.lookup(name).name
        except LookupError:
            raise ValueError(f"expected an encoding that Python knows, e.g. cp1252 or utf-16, found {name!r}") from None


class FilesBase(SourceBase):
    """The fields of folders and archives."""

    nulls: Unordered = Field(("", "NA"), description="Texts that stand for a missing value in CSV.")
    rows_per_part: int = Field(131_072, ge=1, description="Rows that are stored as one part.")
    tables: dict[str, FileTable] = Field(min_length=1, description="The raw tables, by name.")


class FolderSource(FilesBase):
    """Files in a folder, or under an address that fsspec knows (s3://bucket/prefix, gs://, memory://)."""

    kind: Literal["files"] = Field("files", description="What the source is.")
    path: Url = operational(min_length=1, description="The folder or address.")


class SdistSource(FilesBase):
    """Members of a source archive of the Python package index; nothing of it is installed, built or imported."""

    kind: Literal["sdist"] = Field("sdist", description="What the source is.")
    project: str = Field(min_length=1, description="The project's name on the index.")
    version: str = Field(min_length=1, description="The exact version.")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Digest of the archive.")
