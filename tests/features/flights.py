"""A store with the example's definitions, to which snapshots of January's flights are brought one after the other."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.features.computing.compute import compute_view, go_back, run_macros, stage_tables
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.features.table_files import feature_files, view_tables
from gatehouse.store.store import ArtifactStore
from tests.features.publishing import publish_definitions

DAY = timedelta(days=1)
START = datetime(2013, 1, 1, 5, tzinfo=UTC)
AS_OF = datetime(2013, 1, 22, tzinfo=UTC)
SERVICE = "flight_delay"
_TIMED = ("flights", "weather")
_SUFFIXES = (".py", ".sql", ".yaml")


def compute_views(
    connection: duckdb.DuckDBPyConnection, repository: Repository, names: Iterable[str] = ()
) -> dict[str, pa.Table]:
    """The tables of the named views, or of all views, from the raw tables of a connection."""
    views = [repository.views[name] for name in names or repository.views]
    stage_tables(connection, repository, [view.query for view in views])
    return {view.name: compute_view(connection, repository, view) for view in views}


class Flights:
    """The store; `raw` has the Parquet file of every raw table, 1 to 21 January."""

    def __init__(self, folder: Path, raw: Mapping[str, Path], repository: Repository) -> None:
        self.store = ArtifactStore.open(folder / "store")
        self.raw, self.repository, self._folder = raw, repository, folder
        paths = [path for path in sorted(repository.folder.rglob("*")) if path.suffix in _SUFFIXES and path.is_file()]
        self.files = {str(path.relative_to(repository.folder)): path.read_text() for path in paths}

    def definitions(self, changes: Mapping[str, str] | None = None) -> str:
        """Publish the definitions, with other texts in place of some files; where a text is empty, without the file."""
        files = {path: text for path, text in (self.files | dict(changes or {})).items() if text}
        return publish_definitions(self.store, "flights-features", files)

    def changed(self, file: str, *changes: tuple[str, str]) -> dict[str, str]:
        """A file of the definitions with texts replaced, each of which is there."""
        text = self.files[file]
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        return {file: text}

    def snapshot(self, until: datetime, as_of: datetime, changes: Mapping[str, str] | None = None) -> str:
        """The rows before `until`; `changes` replaces the query of a table, which reads `raw.<table>`."""
        before = f" WHERE time_hour < TIMESTAMPTZ '{until.isoformat()}'"
        tables = {}
        with connect() as connection:
            open_tables(connection, {name: [path] for name, path in self.raw.items()})
            for name in self.raw:
                query = (changes or {}).get(name, f"FROM raw.{name}")
                where = before if name in _TIMED else ""
                tables[name] = connection.sql(f"SELECT * FROM ({query}){where}").to_arrow_table()
        return self.published(tables, as_of)

    def known_at(self, moment: datetime) -> str:
        """What stood in the tables at a moment: schedules ahead, departures once they left, arrivals once landed."""
        tables = {}
        with connect() as connection:
            open_tables(connection, {name: [path] for name, path in self.raw.items()}, "source")
            set_time(connection, "as_of", moment)
            set_time(connection, "since", datetime(2012, 1, 1, tzinfo=UTC))
            run_macros(connection, self.repository)
            for name in self.raw:
                go_back(connection, self.repository, name)
                tables[name] = connection.sql(f"FROM raw.{name}").to_arrow_table()
        return self.published(tables, moment)

    def published(self, tables: Mapping[str, pa.Table], as_of: datetime) -> str:
        datasets = {}
        for name, table in tables.items():
            path = self._folder / f"{name}.parquet"
            pq.write_table(table, path)
            datasets[name] = self.store.publish("datasets", name, {"part-00000.parquet": path.read_bytes()})
        details = {"as_of": as_of.isoformat(), "window": ""}
        return str(self.store.publish("snapshots", "flights", {}, derived_from=datasets, details=details))

    def compute(self, snapshot: str, parent: str = "", definitions: str = "") -> str:
        request = ComputeRequest(
            snapshot=snapshot, definitions=definitions or self.definitions(), project="flights", parent=parent
        )
        return compute_features.function(request, self.store).feature_tables

    def retrieve(self, feature_tables: str, service: str = SERVICE) -> str:
        inputs = self.store.manifest(feature_tables).derived_from
        request = RetrieveRequest(
            snapshot=inputs["snapshot"],
            feature_tables=feature_tables,
            definitions=inputs["definitions"],
            service=service,
            as_of=str(self.store.manifest(feature_tables).details["as_of"]),
        )
        return retrieve_training_set.function(request, self.store).training_set

    def views(self, feature_tables: str) -> dict[str, str]:
        return view_tables(self.store, feature_tables)

    def rows(self, feature_tables: str, view: str, where: str = "true") -> list[dict[str, object]]:
        with connect() as connection:
            open_tables(connection, {view: [*feature_files(self.store, feature_tables)[view].values()]})
            rows = connection.sql(f'FROM raw."{view}" WHERE {where} ORDER BY ALL').to_arrow_table().to_pylist()
        return [dict(row) for row in rows]

    @cached_property
    def first_week(self) -> str:
        return self.compute(self.snapshot(START + 7 * DAY, START + 7 * DAY))

    @cached_property
    def training_set(self) -> str:
        return self.retrieve(self.first_week)
