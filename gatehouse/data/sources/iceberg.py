"""Apache Iceberg tables, each pinned to a snapshot of its metadata."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from gatehouse.data.sources.base import Url
from gatehouse.data.sources.lakehouse import DataFile, LakehouseReader, LakehouseSource, LakehouseTable, one_line
from gatehouse.errors import DeclarationError, GatehouseError, SourceError
from gatehouse.runtime.redaction import error_text, holds_password, require_encoded
from gatehouse.store.canonical import digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import DataScan, FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot


class IcebergTable(LakehouseTable):
    """One Iceberg table."""

    identifier: str = Field("", description="Its name in the catalog, `namespace.table`; or give `metadata`.")
    metadata: str = Field("", description="Its metadata file, or its folder if that contains a version hint.")
    snapshot: int | Literal["latest"] = Field(
        "latest", description="Id of the snapshot to read; `latest` is noted in the snapshot taken."
    )

    @model_validator(mode="after")
    def _names_a_table(self) -> "IcebergTable":
        if bool(self.identifier) == bool(self.metadata):
            raise ValueError("give either identifier or metadata")
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
            number = None if spec.snapshot == "latest" else spec.snapshot
            snapshot = opened.current_snapshot() if number is None else opened.snapshot_by_id(number)
            if snapshot is None and number is not None:
                raise DeclarationError(
                    f"Table {table}: the Iceberg table has no snapshot {spec.snapshot}: it was expired, or never was. "
                    f"It has {[snapshot.snapshot_id for snapshot in opened.snapshots()][-5:]}."
                )
            self._opened[table] = (opened, snapshot)
            check_columns(table, self._scan(table).projection().column_names, spec)
        pinned: tuple[Table, Snapshot | None] = self._opened[table]
        return pinned

    def _scan(self, table: str) -> "DataScan":
        """A scan of everything, with the columns of the pinned snapshot; of the table's own for the latest."""
        opened, _ = self._open(table)
        snapshot = self._spec.tables[table].snapshot
        return opened.scan(snapshot_id=None if snapshot == "latest" else snapshot)

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
                f"{error_text(error, holds_password(configured))}. Check the catalog, the name and the "
                "credentials in the environment."
            ) from None

    def _tasks(self, table: str, opened: "Table", snapshot: "Snapshot") -> "list[FileScanTask]":
        """What to read, in the order in which the files came into the table."""
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
