"""Incremental feature tables: as from scratch where sources only grow, and versions where they do not."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.features.compute import connect, go_back, open_tables, run_macros, set_time
from gatehouse.components.features.repository import Repository
from gatehouse.components.features.stage import ComputeRequest, compute_features, feature_files

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
            open_tables(connection, {view: [feature_files(self.store, feature_tables)[view]]})
            found = connection.sql(f'FROM raw."{view}" WHERE {where} ORDER BY ALL').to_arrow_table().to_pylist()
        return [dict(row) for row in found]


@pytest.fixture(scope="module")
def shop(raw_tables: dict[str, Path], repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder = tmp_path_factory.mktemp("incremental")
    return Shop(ArtifactStore.open(folder / "store"), raw_tables, repository, folder)


@settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(days=st.lists(st.integers(2, 18), min_size=2, max_size=3, unique=True), hour=st.integers(0, 23))
def test_day_by_day_gives_the_tables_that_from_scratch_gives(shop: Shop, days: list[int], hour: int) -> None:
    """Deliveries of whole days: rows past their end are provisional, and replaced by the next."""
    parent = ""
    for day in sorted(days):
        until = START + timedelta(days=day, hours=hour)
        snapshot = shop.snapshot(until, until + DAY)
        parent = shop.compute(snapshot, parent)
    assert shop.views(parent) == shop.views(shop.compute(snapshot))


@settings(
    max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(minutes=st.lists(st.integers(3 * 1440, 18 * 1440), min_size=2, max_size=3, unique=True))
def test_in_the_order_of_landing_nothing_that_was_known_changes(shop: Shop, minutes: list[int]) -> None:
    """Rows are completed in place, as flights leave and land: no version is ever added to what was known."""
    parent = ""
    for minute in sorted(minutes):
        snapshot = shop.landed(START + timedelta(minutes=minute))
        parent = shop.compute(snapshot, parent)
    assert shop.views(parent) == shop.views(shop.compute(snapshot))
