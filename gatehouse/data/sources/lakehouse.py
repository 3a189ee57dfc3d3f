"""Lakehouse tables: Delta Lake, each pinned to a version of its log, and Apache Iceberg, each pinned to a snapshot."""

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import AwareDatetime, ConfigDict, Field, model_validator

from gatehouse.data.snapshot.spec import SourceBase, TableSpec
from gatehouse.data.sources.base import EarlierPart, Opened, Part, Raw, Url
from gatehouse.errors import DeclarationError, GatehouseError, SourceError
from gatehouse.runtime.redaction import error_text, require_encoded
from gatehouse.store.canonical import digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as OpenTable
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot


class LakehouseTable(TableSpec):
    """A table of data files. Its rows stand in the order in which the files came into it, then of the rows in each."""

    @model_validator(mode="after")
    def _keeps_its_order(self) -> "LakehouseTable":
        if self.order_by and not self.sort_on_ingest:
            raise ValueError("order_by: rows stand in the order of the table's files; to have another, sort_on_ingest")
        return self


@dataclass(frozen=True)
class DataFile:
    """One immutable file of a table, with a digest of what the log says of it, and its rows if the log counts them."""

    name: str
    identity: str
    columns: Mapping[str, str]
    rows: int | None
    read: Callable[[], "Iterator[pa.Table]"]


class LakehouseSource(SourceBase):
    """Tables of data files."""

    rows_per_part: int = Field(131_072, ge=1, description="Larger data files are cut into parts of this many rows.")


class LakehouseReader(Opened):
    """Tables of data files, each at the version that the first look found."""

    def __init__(self, spec: LakehouseSource, tables: Mapping[str, LakehouseTable]) -> None:
        self._source, self._tables = spec, tables
        self._opened: dict[str, Any] = {}

    def close(self) -> None:
        """Forget the tables."""
        self._opened.clear()

    def state(self) -> Mapping[str, Any]:
        """By table: its id, its version, and its declaration."""
        return {name: self._identify(name) for name in self._tables}

    def _identify(self, table: str, *, version: bool = True) -> dict[str, Any]:
        declared = {"columns": dict(self._tables[table].columns), "time_zone": self._source.time_zone}
        state = self._version(table)
        return declared | (state if version else dict.fromkeys(state) | {"table": state["table"]})

    def _version(self, table: str) -> dict[str, Any]:
        """The table's id as `table`, and its version."""
        raise NotImplementedError

    def _files(self, table: str) -> Iterator[DataFile]:
        """The data files of a table, in the order in which they came into it."""
        raise NotImplementedError

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Runs of `rows_per_part` rows of each data file; of a table that is sorted on ingest, runs of the sorted rows.

        A file whose parts are all known is not read. A file whose rows the log does not count is one part.
        """
        fingerprints, size = {part.fingerprint for part in earlier_parts}, self._source.rows_per_part
        parts = (part for file in self._files(table) for part in self._file_parts(file, table, fingerprints))
        if not self._tables[table].sort_on_ingest:
            yield from parts
            return
        from gatehouse.data.sources.row_runs import sorted_parts

        with tempfile.TemporaryDirectory(prefix="gatehouse-sort-") as directory:
            yield from sorted_parts(parts, self._tables[table], Path(directory), size)

    def _file_parts(self, file: DataFile, table: str, earlier_fingerprints: set[str]) -> Iterator[Part]:
        size, rows = self._source.rows_per_part, file.rows or 0
        starts = range(0, max(rows, 1), size)
        fingerprints = [
            digest_of([file.identity, start, start + size if start + size < rows else None]) for start in starts
        ]
        runs = itertools.repeat(None) if earlier_fingerprints.issuperset(fingerprints) else _runs(file, size)
        for start, fingerprint, run in zip(starts, fingerprints, runs, strict=False):
            yield Part(fingerprint, partial(self._typed, file, table, start, run))

    def _typed(self, file: DataFile, table: str, start: int, run: "list[pa.Table] | None") -> Raw:
        from gatehouse.data.sources.declared import declare

        def place(_piece: "pa.Table", _row: int, number: int) -> str:
            return f"row {start + number} of {file.name}"

        size = self._source.rows_per_part
        pieces = next(itertools.islice(_runs(file, size), start // size, None)) if run is None else run
        raw = declare(pieces, self._tables[table], name=table, place=place, time_zone=self._source.time_zone)
        return replace(raw, columns=file.columns)


def _runs(file: DataFile, size: int) -> "Iterator[list[pa.Table]]":
    """The file's rows in runs, then empty ones."""
    from gatehouse.data.sources.row_runs import runs_in_pieces

    yield from ([list(file.read())] if file.rows is None else runs_in_pieces(file.read(), size))
    yield from itertools.repeat([])


def one_line(error: Exception) -> str:
    """The text of an error without line ends."""
    return " ".join(str(error).split())


_STATISTICS = ("min.", "max.", "null_count.")


class DeltaTable(LakehouseTable):
    """One Delta table."""

    uri: Url = Field(min_length=1, description="Its folder: a path, or e.g. s3://bucket/table.")
    version: Annotated[int, Field(ge=0)] | Literal["latest"] = Field(
        "latest", description="Version to read; `latest` is noted in the snapshot."
    )


class DeltaSource(LakehouseSource):
    """Tables of a lakehouse in the Delta format, read through `deltalake`; credentials come from the environment."""

    kind: Literal["delta"] = Field("delta", description="What the source is.")
    tables: dict[str, DeltaTable] = Field(min_length=1, description="The raw tables, by name.")


class DeltaReader(LakehouseReader):
    """Delta tables: files oldest first, by path within a commit."""

    def __init__(self, spec: DeltaSource) -> None:
        super().__init__(spec, spec.tables)
        self._spec = spec

    def _version(self, table: str) -> dict[str, Any]:
        opened = self._open(table)
        return {"table": str(opened.metadata().id), "version": opened.version()}

    def _files(self, table: str) -> Iterator[DataFile]:
        import pyarrow as pa
        from deltalake.exceptions import DeltaError

        from gatehouse.data.sources.declared import check_columns

        opened = self._open(table)
        try:
            dataset = opened.to_pyarrow_dataset()
        except DeltaError as error:
            raise SourceError(
                f"Table {table}: the Delta table needs what deltalake cannot read file by file: {one_line(error)} "
                "Write it without deletion vectors and column mapping, or read it through its engine as a sql source."
            ) from error
        check_columns(table, dataset.schema.names, self._spec.tables[table])
        columns = {field.name: str(field.type) for field in dataset.schema}
        declared = self._identify(table, version=False)
        fragments = {fragment.path: fragment for fragment in dataset.get_fragments()}
        actions = pa.table(opened.get_add_actions(flatten=True)).to_pylist()
        for action in sorted(actions, key=lambda action: (action["modification_time"], action["path"])):
            facts = {key: str(value) for key, value in action.items() if not key.startswith(_STATISTICS)}
            identity = digest_of([declared, facts])
            # The log encodes paths as URLs do.
            read = partial(self._rows, table, fragments[unquote(action["path"])], dataset.schema)
            yield DataFile(action["path"], identity, columns, action["num_records"], read)

    def _open(self, table: str) -> "OpenTable":
        from deltalake import DeltaTable as OpenTable
        from deltalake.exceptions import DeltaError

        spec = self._spec.tables[table]
        if table not in self._opened:
            try:
                version = None if spec.version == "latest" else spec.version
                self._opened[table] = OpenTable(spec.uri, version=version)
            except (DeltaError, OSError) as error:
                raise SourceError(
                    f"Table {table}: version {spec.version} of the Delta table {spec.uri} cannot be read: "
                    f"{one_line(error)} Check its address, and that the log still holds this version."
                ) from error
        pinned: OpenTable = self._opened[table]
        return pinned

    def _rows(self, table: str, fragment: Any, schema: "pa.Schema") -> Iterator["pa.Table"]:
        import pyarrow as pa

        columns = [column for column in self._spec.tables[table].columns if column in schema.names]
        try:
            # Without threads and with one batch ahead, memory stays that of a row group.
            scanner = fragment.scanner(schema=schema, columns=columns, batch_readahead=1, use_threads=False)
            for batch in scanner.to_batches():
                yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException) as error:
            gone = "is gone: it was vacuumed" if isinstance(error, FileNotFoundError) else "cannot be read"
            raise SourceError(
                f"Table {table}: {fragment.path}, a file of version {self._open(table).version()}, {gone}: "
                f"{one_line(error)} Read a version whose files are kept."
            ) from error


class IcebergTable(LakehouseTable):
    """One Iceberg table."""

    identifier: str = Field("", description="Its name in the catalog, `namespace.table`; or give `metadata`.")
    metadata: str = Field("", description="Its metadata file, or its folder if that contains a version hint.")
    snapshot: int | Literal["latest"] = Field(
        "latest", description="Id of the snapshot to read; `latest` is noted in the snapshot taken."
    )
    at: AwareDatetime | None = Field(None, description="Time whose snapshot is read, in place of `snapshot`.")

    @model_validator(mode="after")
    def _names_a_table(self) -> "IcebergTable":
        if bool(self.identifier) == bool(self.metadata):
            raise ValueError("give either identifier or metadata")
        if self.at and self.snapshot != "latest":
            raise ValueError("at: expected none beside snapshot, which names what is read")
        return self


class IcebergSource(LakehouseSource):
    """Tables of a lakehouse in the Iceberg format, read through `pyiceberg`; credentials come from the environment."""

    # A refused URL may hold a password.
    model_config = ConfigDict(hide_input_in_errors=True)

    kind: Literal["iceberg"] = Field("iceberg", description="What the source is.")
    catalog: str = Field(
        "",
        description="Name of the catalog. Unless `catalog_url` is given, its address comes from pyiceberg's "
        "own configuration file or environment (PYICEBERG_CATALOG__<NAME>__URI …).",
    )
    catalog_url: Url = Field("", description="URL of a SQL catalog without a password, e.g. sqlite:///catalog.db.")
    warehouse: str = Field("", description="Folder of a SQL catalog's tables.")
    tables: dict[str, IcebergTable] = Field(min_length=1, description="The raw tables, by name.")

    @model_validator(mode="after")
    def _names_a_catalog(self) -> "IcebergSource":
        needing = [name for name, table in self.tables.items() if table.identifier]
        if needing and not self.catalog:
            raise ValueError(f"give catalog, the name of the catalog that {', '.join(needing)} is in")
        return self


class IcebergReader(LakehouseReader):
    """Iceberg tables: files in the order of the commits, then by path.

    Rows that delete files name are left out; a file's fingerprint holds its delete files.
    """

    def __init__(self, spec: IcebergSource) -> None:
        super().__init__(spec, spec.tables)
        self._spec = spec

    def _version(self, table: str) -> dict[str, Any]:
        opened, snapshot = self._open(table)
        return {"table": str(opened.metadata.table_uuid), "snapshot": snapshot.snapshot_id if snapshot else None}

    def _files(self, table: str) -> Iterator[DataFile]:
        opened, snapshot = self._open(table)
        columns = {field.name: str(field.field_type) for field in self._scan(table).projection().fields}
        declared = self._identify(table, version=False)
        location = opened.metadata.location
        for task in self._tasks(table, opened, snapshot) if snapshot else ():
            name = task.file.file_path.removeprefix(location)
            deletes = sorted(delete.file_path.removeprefix(location) for delete in task.delete_files)
            rows = task.file.record_count
            identity = digest_of([declared, [name, task.file.file_size_in_bytes, rows, deletes]])
            yield DataFile(name, identity, columns, rows, partial(self._rows, table, task))

    def _open(self, table: str) -> "tuple[Table, Snapshot | None]":
        from gatehouse.data.sources.declared import check_columns

        if table not in self._opened:
            spec = self._spec.tables[table]
            opened = self._load(table)
            pinned_by, snapshot = spec.at or spec.snapshot, opened.current_snapshot()
            if spec.at:
                snapshot = opened.snapshot_as_of_timestamp(int(spec.at.timestamp() * 1000))
            elif spec.snapshot != "latest":
                snapshot = opened.snapshot_by_id(spec.snapshot)
            if snapshot is None and pinned_by != "latest":
                raise DeclarationError(
                    f"Table {table}: the Iceberg table has no snapshot {pinned_by}: it was expired, or never was. "
                    f"It has {[snapshot.snapshot_id for snapshot in opened.snapshots()][-5:]}."
                )
            self._opened[table] = (opened, snapshot)
            check_columns(table, self._scan(table).projection().column_names, spec)
        pinned: tuple[Table, Snapshot | None] = self._opened[table]
        return pinned

    def _scan(self, table: str) -> "DataScan":
        """A scan of everything, with the columns of the pinned snapshot; of the table's own for the latest."""
        opened, snapshot = self._open(table)
        spec = self._spec.tables[table]
        latest = spec.snapshot == "latest" and spec.at is None
        return opened.scan(snapshot_id=None if latest or snapshot is None else snapshot.snapshot_id)

    def _load(self, table: str) -> "Table":
        from pyiceberg.catalog import load_catalog
        from pyiceberg.table import StaticTable
        from pyiceberg.utils.config import Config

        spec = self._spec.tables[table]
        # Its own configuration, from its file and the environment.
        configured = str((Config().get_catalog_config(self._spec.catalog) or {}).get("uri", ""))
        if configured:
            require_encoded(configured, f"The address of the catalog {self._spec.catalog}", DeclarationError)
        try:
            if spec.metadata:
                return StaticTable.from_metadata(spec.metadata)
            path = self._spec.catalog_url.removeprefix("sqlite:///")
            if path != self._spec.catalog_url and not Path(path).is_file():  # SQLite would write an empty catalog.
                raise DeclarationError(
                    f"catalog_url: expected a catalog of Iceberg tables, found no file {path}. Correct it."
                )
            settings = {"type": "sql", "uri": self._spec.catalog_url, "warehouse": self._spec.warehouse}
            catalog = load_catalog(self._spec.catalog, **(settings if self._spec.catalog_url else {}))
            return catalog.load_table(spec.identifier)
        except GatehouseError:
            raise
        except Exception as error:
            # Catalogs raise whatever their client raises.
            raise SourceError(
                f"Table {table}: the Iceberg table {spec.metadata or spec.identifier} cannot be opened: "
                f"{error_text(error)}. Check the catalog, the name and the "
                "credentials in the environment."
            ) from None

    def _tasks(self, table: str, opened: "Table", snapshot: "Snapshot") -> "list[FileScanTask]":
        """The tasks of a scan, in the order in which the files came into the table."""
        try:
            tasks = list(self._scan(table).plan_files())
            added = {
                entry.data_file.file_path: entry.sequence_number or 0
                for manifest in snapshot.manifests(opened.io)
                for entry in manifest.fetch_manifest_entry(opened.io)
            }
        except (OSError, ValueError, NotImplementedError) as error:
            raise SourceError(
                f"Table {table}: snapshot {snapshot.snapshot_id} cannot be planned: {one_line(error)} Equality "
                "deletes have to be compacted first; metadata files that were removed cannot be read."
            ) from error
        return sorted(tasks, key=lambda task: (added[task.file.file_path], task.file.file_path))

    def _rows(self, table: str, task: "FileScanTask") -> Iterator["pa.Table"]:
        import pyarrow as pa
        from pyiceberg.exceptions import ResolveError
        from pyiceberg.io.pyarrow import ArrowScan

        opened, snapshot = self._open(table)
        scan = self._scan(table)
        present = [column for column in self._spec.tables[table].columns if column in scan.projection().column_names]
        projected = scan.select(*present).projection()
        name = task.file.file_path.rsplit("/", 1)[-1]
        try:
            for batch in ArrowScan(opened.metadata, opened.io, projected, scan.row_filter).to_record_batches([task]):
                yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException, ResolveError, NotImplementedError) as error:
            gone = "is gone: its snapshot was expired" if isinstance(error, FileNotFoundError) else "cannot be read"
            raise SourceError(
                f"Table {table}: {name}, a file of snapshot {snapshot.snapshot_id if snapshot else ''}, {gone}: "
                f"{one_line(error)} Read a snapshot whose files are kept."
            ) from error
