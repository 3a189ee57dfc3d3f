"""Delta Lake tables, each pinned to a version of its log."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import Field

from gatehouse.data.sources.base import Url
from gatehouse.data.sources.lakehouse import DataFile, LakehouseReader, LakehouseSource, LakehouseTable, one_line
from gatehouse.errors import SourceError
from gatehouse.store.canonical import digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as OpenTable

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
