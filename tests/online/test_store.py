"""Both online stores: rows are kept by (event, created), and reading follows the rules of an offline join."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.features.database import connect
from gatehouse.features.point_in_time.asof_join import Joined, asof_join
from gatehouse.online.redis import RedisOnline
from gatehouse.online.serving import open_online, sqlite_file
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import FOREVER, OnlineStore, OnlineView, State, epoch_us
from gatehouse.store.store import ArtifactStore
from tests.features.online_rows import NOON, TIME, VIEW, at, counted, counts, read, rows


def test_a_key_that_is_null_has_no_features_and_takes_them_from_no_other(online: OnlineStore) -> None:
    online.write(VIEW, counted(("A", 0, 0, 1), ("B", 0, 0, 2)))
    keys = pa.table({"carrier": pa.array([None, "B", None, "A"], pa.string())})
    assert online.read([VIEW], keys, NOON)["count"].to_pylist() == [None, 2, None, 1]
    keys = pa.table({"carrier": pa.array([None], pa.string())})
    assert online.read([VIEW], keys, NOON)["count"].to_pylist() == [None]


def test_a_correction_arrives_and_a_straggler_or_a_repeated_row_does_not(online: OnlineStore) -> None:
    assert online.write(VIEW, rows(("AA", 5, 5, 1.0, 1, "a", 1.0), ("B6", 6, None, 2.0, 2, "b", 2.0))) == 2
    assert online.write(VIEW, rows(("AA", 5, 9, 2.0, 2, "b", 2.0))) == 1
    assert online.write(VIEW, rows(("AA", 4, 20, 3.0, 3, "c", 3.0), ("AA", 5, 8, 4.0, 4, "d", 4.0))) == 0
    assert online.write(VIEW, rows(("AA", 5, 9, 5.0, 5, "e", 5.0), ("B6", 6, None, 2.0, 2, "b", 2.0))) == 0
    assert read(online, ["AA"], at(10)) == [{"delay": 2.0, "count": 2, "name": "b", "mean": 2.0}]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("string", pa.table({"carrier": [7]})),
        ("string", pa.table({"origin": ["7"]})),
        ("int64", pa.table({"carrier": pa.array([7], pa.int32())})),
    ],
)
def test_keys_that_no_row_can_have_are_errors(online: OnlineStore, kind: str, keys: pa.Table) -> None:
    with pytest.raises(ConfigurationError, match="carrier"):
        online.read([replace(VIEW, kinds=(kind,))], keys, NOON)


def test_more_keys_than_one_command_takes(online: OnlineStore) -> None:
    view = OnlineView("many", ("key",), ("value",), "event")
    keys = pa.array(range(9000), pa.int64())
    online.write(view, pa.table({"key": keys, "event": pa.array([at(0)] * 9000, TIME), "value": keys}))
    assert online.read([view], pa.table({"key": keys}), at(0))["value"].to_pylist() == keys.to_pylist()
    assert online.read([view], pa.table({"key": keys[:0]}), at(0)).num_rows == 0


def test_a_null_key_and_an_unsupported_type_are_errors(online: OnlineStore) -> None:
    with pytest.raises(ConfigurationError, match="carrier: 1 of 1 values are null"):
        online.write(VIEW, counted((None, 0, 0, 1)))
    view = OnlineView("dates", ("carrier",), ("day",), "event")
    table = pa.table({"carrier": ["AA"], "event": pa.array([NOON], TIME), "day": pa.array([NOON.date()])})
    with pytest.raises(ConfigurationError, match=r"Feature day: .*date32"):
        online.write(view, table)


def test_a_new_generation_replaces_newer_rows_and_sweeping_removes_the_rest(online: OnlineStore) -> None:
    online.write(VIEW, counted(("A", 9, 9, 1), ("B", 9, 9, 2)), generation=1)
    assert online.write(VIEW, counted(("A", 5, 5, 3)), 2, FOREVER) == 1
    assert counts(online, "AB", at(10)) == [3, 2]
    online.sweep(VIEW, 2)
    assert counts(online, "AB", at(10)) == [3, None]
    assert online.write(VIEW, counted(("A", 10, 10, 4)), 1, FOREVER) == 0
    online.swap("delays", State(), State(generation=3, last=3))
    assert [online.write(VIEW, counted(row)) for row in (("A", 4, 9, 5), ("A", 10, 10, 6))] == [0, 1]


def test_a_generation_removes_rows_but_those_written_as_known_later(online: OnlineStore) -> None:
    """The table of minute 10 has no row of A and B any more, and an older one of C."""
    online.write(VIEW, counted(("A", 5, 5, 1), ("B", 5, 12, 2), ("C", 12, 12, 3)))
    gone = counted(("A", 0, 0, 0), ("B", 0, 0, 0))
    gone = gone.set_column(1, "event", pa.nulls(2, TIME)).set_column(2, "created", pa.nulls(2, TIME))
    written = online.write(VIEW, pa.concat_tables([gone, counted(("C", 4, 4, 4))]), 1, epoch_us(at(10)))
    assert (written, counts(online, "ABC", at(12))) == (1, [None, 2, 3])
    assert sorted(online.provisional(VIEW)["carrier"].to_pylist()) == ["B", "C"]


def test_sweeping_leaves_other_views_and_other_projects(server: Redis, online: OnlineStore) -> None:
    other = OnlineView("weather", ("carrier",), ("temp",), "event")
    # The names of these projects end alike, and so do their keys in Redis.
    beside = RedisOnline(server, "old-flights")
    for store in (online, beside):
        store.write(VIEW, counted(("A", 0, 0, 1)), generation=0)
    online.write(other, pa.table({"carrier": ["A"], "event": pa.array([at(0)], TIME), "temp": [20]}), generation=0)
    online.sweep(VIEW, 1)
    assert counts(online, "A", at(1)) == [None]
    assert counts(beside, "A", at(1)) == [1]
    assert online.read([other], pa.table({"carrier": ["A"]}), at(1))["temp"].to_pylist() == [20]


def test_a_state_changes_only_if_it_is_what_it_was(online: OnlineStore) -> None:
    first, second = State(known=5, features=("a",)), State(known=7)
    assert online.state("delays") == State()
    assert online.swap("delays", State(), first)
    assert not online.swap("delays", State(), second)
    assert online.state("delays") == first
    assert online.swap("delays", first, second)
    assert (online.state("delays"), online.state("other")) == (second, State())
    assert State.load('{"generation": 2, "pushed": 5}') == State(generation=2), "a store of earlier versions"


minutes = st.integers(0, 6)
batches = st.lists(st.lists(st.tuples(st.sampled_from("ab"), minutes, minutes), max_size=5), max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=batches, now=st.integers(6, 40))
def test_reading_gives_what_an_offline_join_gives(
    server: Redis, tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[str, int, int]]], now: int
) -> None:
    """Whatever the batches: once everything is known, online and offline agree, the time to live included."""
    server.flushall()
    stores: list[OnlineStore] = [RedisOnline(server, "flights")]
    stores.append(SqliteOnline(tmp_path_factory.mktemp("sqlite") / "online.db", "flights"))
    written: dict[tuple[str, int, int], tuple[str, float, float, int]] = {}
    for batch in batches:
        # Rows that are known at the same time about the same event have no order: one of them is enough.
        fresh = {row: (*row, len(written) + n) for n, row in enumerate(dict.fromkeys(batch)) if row not in written}
        written |= fresh
        for store in stores:
            store.write(VIEW, counted(*fresh.values()))
    with connect() as connection:
        connection.register("offline", counted(*written.values()))
        entities = pa.table({"carrier": ["a", "b"], "time": pa.array([at(now), at(now)], TIME)})
        view = Joined("offline", {"carrier": "carrier"}, "event", {"count": "count"}, "created", VIEW.ttl)
        expected = asof_join(connection, entities, "time", [view])["count"].to_pylist()
    assert [counts(store, "ab", at(now)) for store in stores] == [expected, expected]


def settings_file(folder: Path, online_store: str) -> Path:
    (folder / "feature_store.yaml").write_text(f"project: flights\nonline_store: {online_store}\n")
    return folder


def test_the_settings_choose_the_store(server: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.flushall()
    monkeypatch.setenv("GATEHOUSE_ONLINE_STORE", f"127.0.0.1:{server.port},db=1")
    folder = settings_file(tmp_path, "{type: redis, connection_string: '${GATEHOUSE_ONLINE_STORE}'}")
    store = ArtifactStore.open(tmp_path / "store")
    chosen = open_online(store, "flights", folder)
    chosen.write(VIEW, counted(("A", 0, 0, 1)))
    assert isinstance(chosen, RedisOnline)
    assert counts(chosen, "A", at(1)) == [1] and server.dbsize() == 0
    for embedded in ("{type: sqlite}", "sqlite"):
        assert isinstance(open_online(store, "flights", settings_file(tmp_path, embedded)), SqliteOnline)
    assert sqlite_file(store, "flights").is_file()


@pytest.mark.parametrize(
    ("online_store", "message"),
    [
        ("{type: redis, connection_string: '${GATEHOUSE_ONLINE_STORE}'}", "names GATEHOUSE_ONLINE_STORE"),
        ("{type: redis, connection_string: nowhere}", "expected host:port"),
        ("{type: redis, connection_string: 'here:1,colour=red'}", "connection_string: .*name=value"),
        ("{type: dynamodb}", "expected one of sqlite, redis"),
    ],
)
def test_wrong_settings_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online_store: str, message: str
) -> None:
    monkeypatch.delenv("GATEHOUSE_ONLINE_STORE", raising=False)
    with pytest.raises(ConfigurationError, match=message):
        open_online(ArtifactStore.open(tmp_path / "store"), "flights", settings_file(tmp_path, online_store))


def test_the_error_of_a_server_that_is_gone_names_it_but_not_the_password(tmp_path: Path) -> None:
    folder = settings_file(tmp_path, "{type: redis, connection_string: 'localhost:1,password=hush'}")
    online = open_online(ArtifactStore.open(tmp_path / "store"), "flights", folder)
    with pytest.raises(StoreError, match="Redis at localhost:1") as caught:
        online.write(VIEW, counted(("A", 0, 0, 1)))
    assert "hush" not in str(caught.value)
