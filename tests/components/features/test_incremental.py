"""Incremental feature tables: as from scratch where sources only grow, and versions where they do not."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.computing.compute import go_back, run_macros
from gatehouse.components.features.computing.stage import ComputeRequest, compute_features
from gatehouse.components.features.database import connect, open_tables, set_time
from gatehouse.components.features.definitions.repository import Repository
from gatehouse.components.features.online.materialization import materialize_views
from gatehouse.components.features.online.sqlite import SqliteOnline
from gatehouse.components.features.online.store import offline_join, online_view
from gatehouse.components.features.point_in_time.asof_join import asof_join
from gatehouse.components.features.table_files import feature_files, settled_times

DAY = timedelta(days=1)
START = datetime(2013, 1, 1, 5, tzinfo=UTC)
TIMED = ("flights", "weather")


class Shop:
    """A store with the definitions, to which snapshots of January are brought one after the other."""

    def __init__(self, store: ArtifactStore, raw: dict[str, Path], repository: Repository, folder: Path) -> None:
        self.store, self.raw, self.repository, self.folder = store, raw, repository, folder
        files = [path for path in sorted(repository.folder.rglob("*")) if path.suffix in (".py", ".sql", ".yaml")]
        self.files = {str(path.relative_to(repository.folder)): path.read_bytes() for path in files}
        self.definitions = str(store.publish("config", "flights-features", self.files))

    def snapshot(self, until: datetime, as_of: datetime, changes: Mapping[str, str] | None = None) -> str:
        """The rows before `until`; `changes` replaces the query of a table, which reads `raw.<table>`."""
        datasets = {}
        with connect() as connection:
            open_tables(connection, {name: [path] for name, path in self.raw.items()})
            for name in self.raw:
                query = (changes or {}).get(name, f"FROM raw.{name}")
                where = f" WHERE time_hour < TIMESTAMPTZ '{until.isoformat()}'" if name in TIMED else ""
                datasets[name] = self.publish(name, connection.sql(f"SELECT * FROM ({query}){where}").to_arrow_table())
        return self.published(datasets, as_of)

    def landed(self, cut: datetime) -> str:
        """What stood in the tables at a moment: schedules ahead, departures once they left, arrivals once landed."""
        datasets = {}
        with connect() as connection:
            open_tables(connection, {name: [path] for name, path in self.raw.items()}, "source")
            set_time(connection, "as_of", cut)
            set_time(connection, "since", datetime(2012, 1, 1, tzinfo=UTC))
            run_macros(connection, self.repository)
            for name in self.raw:
                go_back(connection, self.repository, name)
                datasets[name] = self.publish(name, connection.sql(f"FROM raw.{name}").to_arrow_table())
        return self.published(datasets, cut)

    def publish(self, name: str, table: pa.Table) -> str:
        path = self.folder / f"{name}.parquet"
        pq.write_table(table, path)
        return str(self.store.publish("datasets", name, {"part-00000.parquet": path.read_bytes()}))

    def published(self, datasets: Mapping[str, str], as_of: datetime) -> str:
        details = {"as_of": as_of.isoformat(), "window": ""}
        return str(
            self.store.publish("snapshots", "flights", {"source.json": "{}"}, derived_from=datasets, details=details)
        )

    def compute(self, snapshot: str, parent: str = "", definitions: str = "") -> str:
        request = ComputeRequest(
            snapshot=snapshot, definitions=definitions or self.definitions, project="flights", parent=parent
        )
        return compute_features.function(request, self.store).feature_tables

    def views(self, feature_tables: str) -> dict[str, str]:
        inputs = self.store.manifest(feature_tables).derived_from
        return {role.removeprefix("view:"): one for role, one in inputs.items() if role.startswith("view:")}

    def rows(self, feature_tables: str, view: str, where: str = "true") -> list[dict[str, object]]:
        with connect() as connection:
            open_tables(connection, {view: [*feature_files(self.store, feature_tables)[view].values()]})
            found = connection.sql(f'FROM raw."{view}" WHERE {where} ORDER BY ALL').to_arrow_table().to_pylist()
        return [dict(row) for row in found]


@pytest.fixture(scope="module")
def shop(raw_tables: dict[str, Path], repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("incremental")
    return Shop(ArtifactStore.open(folder / "store"), raw_tables, repository, folder)


def test_day_by_day_gives_the_tables_that_from_scratch_gives(shop: Shop) -> None:
    """Deliveries of whole days: rows past their end are provisional, and replaced by the next."""
    parent = ""
    for until in (START + 2 * DAY, START + 3 * DAY, START + timedelta(days=9, hours=7)):
        snapshot = shop.snapshot(until, until + DAY)
        parent = shop.compute(snapshot, parent)
    assert shop.views(parent) == shop.views(shop.compute(snapshot))


def test_in_the_order_of_landing_nothing_that_was_known_changes(shop: Shop) -> None:
    """Rows are completed in place, as flights leave and land: no version is ever added to what was known."""
    parent = ""
    for cut in (timedelta(days=3, minutes=700), timedelta(days=3, minutes=915), timedelta(days=11, minutes=3)):
        snapshot = shop.landed(START + cut)
        parent = shop.compute(snapshot, parent)
    assert shop.views(parent) == shop.views(shop.compute(snapshot))


@pytest.fixture(scope="module")
def corrected(shop: Shop) -> tuple[str, str, datetime, datetime]:
    """Tables of a snapshot, and those after one more day in which the delay of an early flight was corrected."""
    until = START + 8 * DAY
    first = shop.compute(shop.snapshot(until, until + DAY))
    later = until + 2 * DAY
    wrong = "arr_delay = 33 AND tailnum = 'N39463' OR arr_delay = 20 AND tailnum = 'N24211'"
    flights = f"SELECT * REPLACE (if({wrong}, arr_delay + 100, arr_delay) AS arr_delay) FROM raw.flights"
    return first, shop.compute(shop.snapshot(until + DAY, later, {"flights": flights}), first), until + DAY, later


def test_a_corrected_row_adds_versions_and_what_was_known_stays(
    shop: Shop, corrected: tuple[str, str, datetime, datetime]
) -> None:
    first, second, before, as_of = corrected
    for view in ("aircraft_last_leg", "origin_traffic", "flight_record"):
        late = f"known_from = '{as_of}' AND event_timestamp < '{as_of - 4 * DAY}'"
        added = shop.rows(second, view, late)
        assert added, view
        settled = f"known_from < '{before - 2 * DAY - timedelta(hours=2)}'"
        assert shop.rows(second, view, settled) == shop.rows(first, view, settled)
        for row in added:
            keys = shop.repository.views[view].spec.entities
            same = " AND ".join(f"{key} = '{row[key]}'" for key in keys)
            versions = shop.rows(second, view, f"{same} AND event_timestamp = '{row['event_timestamp']}'")
            assert len(versions) == 2 and versions[0]["known_from"] == row["event_timestamp"]


def test_the_newest_versions_are_the_rows_from_scratch(
    shop: Shop, corrected: tuple[str, str, datetime, datetime]
) -> None:
    second = corrected[1]
    scratch = shop.compute(shop.store.manifest(second).derived_from["snapshot"])
    for view in shop.repository.views.values():
        keys = ", ".join((*view.spec.entities, "event_timestamp"))
        newest = f"true QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY known_from DESC) = 1"
        rows = [{**row, "known_from": None} for row in shop.rows(second, view.name, newest)]
        assert rows == [{**row, "known_from": None} for row in shop.rows(scratch, view.name)], view.name


def test_the_next_day_is_materialized_without_writing_the_past_again(
    shop: Shop, corrected: tuple[str, str, datetime, datetime]
) -> None:
    """Its sources say more about the last days, which were provisional; and an early flight was corrected."""
    online = SqliteOnline(shop.folder / "online.db", "flights")
    views = [
        online_view(shop.repository.views[name]) for name in ("flight_schedule", "flight_record", "origin_traffic")
    ]
    for tables, as_of in zip(corrected[:2], corrected[2:], strict=True):
        files = {name: [*paths.values()] for name, paths in feature_files(shop.store, tables).items()}
        written = materialize_views(online, views, files, as_of, settled=settled_times(shop.store, tables))
    assert not any(one.rewritten for one in written)
    for view, one in zip(views, written, strict=True):
        rows = shop.rows(corrected[1], view.name, f"event_timestamp <= '{as_of}'")
        keys = sorted({tuple(row[key] for key in view.keys) for row in rows})
        assert one.rows < 0.6 * len(keys) or view.name == "origin_traffic", "its hourly rows are of all keys"
        asked = pa.table({key: [each[place] for each in keys] for place, key in enumerate(view.keys)})
        timed = asked.append_column("as of", pa.array([as_of] * len(keys), pa.timestamp("us", "UTC")))
        with connect() as connection:
            open_tables(connection, {view.name: files[view.name]})
            offline = asof_join(connection, timed, "as of", [offline_join(view, f"raw.{view.name}")])
        found = online.read([view], asked, as_of)
        assert found.equals(offline.select(view.features).cast(found.schema)), view.name
        assert found[view.features[0]].null_count < len(keys)


def test_files_that_nothing_changed_keep_their_bytes(shop: Shop) -> None:
    until = datetime(2013, 1, 6, 5, tzinfo=UTC)
    december = "SELECT * REPLACE (time_hour - INTERVAL 10 DAY AS time_hour) FROM raw.weather"
    first = shop.compute(shop.snapshot(until, until + DAY, {"weather": december}))
    second = shop.compute(shop.snapshot(until + DAY, until + 2 * DAY, {"weather": december}), first)
    files = [
        {entry.path: entry.sha256 for entry in shop.store.manifest(shop.views(tables)["origin_weather"]).files}
        for tables in (first, second)
    ]
    weeks = [f"known-{day}.parquet" for day in ("2012-12-17", "2012-12-24", "2012-12-31", "2013-01-07")]
    assert [*files[1]] == weeks
    assert [name for name in weeks if files[0].get(name) != files[1][name]] == weeks[2:]


def test_one_changed_query_changes_one_view(shop: Shop) -> None:
    snapshot = shop.snapshot(START + 3 * DAY, START + 4 * DAY)
    first = shop.compute(snapshot)
    query = shop.files["views/aircraft.sql"].replace(b"seats AS", b"seats + 1 AS")
    definitions = str(shop.store.publish("config", "flights-features", {**shop.files, "views/aircraft.sql": query}))
    second = shop.compute(snapshot, first, definitions)
    differing = {name for name, one in shop.views(second).items() if one != shop.views(first)[name]}
    assert differing == {"aircraft"}
    assert shop.store.manifest(second).details["changed"] == {"aircraft": ["code views/aircraft.sql"]}
