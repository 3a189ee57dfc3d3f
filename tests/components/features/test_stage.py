"""The feature stages on three weeks of real flights: what they publish, and that a planted leak is caught."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.control.stage import Requirement, require_no_skew
from gatehouse.components.features.computing.stage import ComputeRequest, compute_features
from gatehouse.components.features.leakage.stage import LeakageRequest, LeakageResult, check_leakage
from gatehouse.components.features.online.report import skew_page
from gatehouse.components.features.online.stage import MaterializeRequest, materialize
from gatehouse.components.features.point_in_time.stage import RetrieveRequest, retrieve_training_set
from gatehouse.errors import ConfigurationError, SkewError

AS_OF = "2013-01-22T00:00:00+00:00"
SUFFIXES = (".py", ".sql", ".yaml")


class House:
    """A store with a snapshot of January, and the feature stages run on changed definitions."""

    def __init__(self, store: ArtifactStore, raw_tables: dict[str, Path], folder: Path) -> None:
        self.store = store
        files = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in files}
        datasets = {
            name: store.publish("datasets", name, {"part-00000.parquet": path.read_bytes()})
            for name, path in raw_tables.items()
        }
        self.snapshot = str(
            store.publish(
                "snapshots", "flights", {"source.json": "{}"}, derived_from=datasets, details={"as_of": AS_OF}
            )
        )

    def definitions(self, **changes: str) -> str:
        files = {**self.files, **{name.replace("__", "/") + ".sql": text.encode() for name, text in changes.items()}}
        return str(self.store.publish("config", "flights-features", files))

    def retrieve(self, definitions: str, parent: str = "") -> tuple[str, str]:
        computed = compute_features.function(
            ComputeRequest(snapshot=self.snapshot, definitions=definitions, project="flights", parent=parent),
            self.store,
        )
        request = RetrieveRequest(
            snapshot=self.snapshot,
            feature_tables=computed.feature_tables,
            definitions=definitions,
            service="flight_delay",
            as_of=AS_OF,
        )
        return computed.feature_tables, retrieve_training_set.function(request, self.store).training_set

    def check(self, definitions: str, parent: str = "", cuts: int = 3) -> LeakageResult:
        feature_tables, training_set = self.retrieve(definitions, parent)
        request = LeakageRequest(
            snapshot=self.snapshot,
            feature_tables=feature_tables,
            training_set=training_set,
            definitions=definitions,
            alarm=0.80,
            cuts=cuts,
        )
        return check_leakage.function(request, self.store)

    def query(self, name: str, change: Callable[[str], str]) -> str:
        before = self.files[name].decode()
        after = change(before)
        assert after != before
        return after


@pytest.fixture(scope="module")
def house(raw_tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, repository: object) -> House:
    return House(ArtifactStore.open(tmp_path_factory.mktemp("store")), raw_tables, repository.folder)  # type: ignore[attr-defined]  # a Repository


@pytest.fixture(scope="module")
def honest(house: House) -> tuple[str, str]:
    return house.retrieve(house.definitions())


def test_the_training_set_says_what_its_columns_are(house: House, honest: tuple[str, str]) -> None:
    manifest = house.store.manifest(honest[1])
    details = manifest.details
    names = [column.name for column in manifest.columns]
    keys = details["entity_keys"]
    assert names[: len(keys) + 3] == [*keys, "decision_time", "label", "label_time"]
    assert set(names[len(keys) + 3 :]) == {*details["numeric"], *details["categorical"]}
    assert set(details["categorical"]) >= {"airline", "airport", "destination", "weekday"}
    assert details["set_aside"]["cancelled"] > 0
    assert {column.name: column.type for column in manifest.columns}["decision_time"] == "timestamp[us, tz=UTC]"


def test_the_training_set_keeps_every_entity_row_once_in_order(house: House, honest: tuple[str, str]) -> None:
    table = pq.read_table(house.store.path(honest[1], "part-00000.parquet"))
    order = list(zip(table["decision_time"].to_pylist(), table["flight_id"].to_pylist(), strict=True))
    assert order == sorted(order)
    assert len(set(order)) == table.num_rows > 15_000
    assert table.schema.field("label").type == pa.int8()


def test_the_same_request_gives_the_same_references(house: House, honest: tuple[str, str]) -> None:
    assert house.retrieve(house.definitions()) == honest


def test_honest_views_pass(house: House, honest: tuple[str, str]) -> None:
    result = house.check(house.definitions(), parent=honest[0])
    assert (result.verdict, result.reasons) == ("pass", ())
    report = house.store.read_json(result.leakage, "leakage.json")
    assert len(report["cuts"]) == 3
    assert all(cut["rows"] > 0 for cut in report["cuts"])
    assert max(report["single_feature_auc"].values()) < 0.80


LEAKS = {
    "aircraft_last_leg.last_leg_delay": {
        "landed_at AS event_timestamp": "scheduled_at AS event_timestamp",
        "GROUP BY tailnum, landed_at": "GROUP BY tailnum, scheduled_at",
    },
    "origin_weather.humidity": {"known_at AS event_timestamp": "hour_start AS event_timestamp"},
    "carrier_traffic.carrier_overdue": {
        "event_timestamp,\n    overdue": "event_timestamp - INTERVAL 1 HOUR AS event_timestamp,\n    overdue"
    },
}


def test_views_stamped_before_they_are_known_are_caught_and_no_others(house: House, honest: tuple[str, str]) -> None:
    planted = {}
    for feature, changes in LEAKS.items():
        view = feature.partition(".")[0]

        def leak(text: str, changes: dict[str, str] = changes) -> str:
            for before, after in changes.items():
                assert before in text
                text = text.replace(before, after)
            return text

        planted[f"views__{view}"] = house.query(f"views/{view}.sql", leak)
    result = house.check(house.definitions(**planted), parent=honest[0])
    assert result.verdict == "fail"
    for feature in LEAKS:
        assert any(f"{feature} holds what was not known" in reason for reason in result.reasons), feature
    assert {reason.partition(".")[0] for reason in result.reasons} == {one.partition(".")[0] for one in LEAKS}


def test_a_feature_that_tells_the_label_raises_the_alarm(house: House, honest: tuple[str, str]) -> None:
    sql = house.query(
        "views/flight_schedule.sql", lambda text: text.replace("\n    distance,", "\n    arr_delay AS distance,")
    )
    result = house.check(house.definitions(views__flight_schedule=sql), parent=honest[0], cuts=1)
    assert any(reason.startswith("distance alone tells the label") for reason in result.reasons)


def test_broken_sql_names_its_file(house: House) -> None:
    with pytest.raises(ConfigurationError, match=r"views/aircraft\.sql does not run"):
        house.retrieve(house.definitions(views__aircraft="SELECT nothing FROM raw.planes"))


def test_an_unknown_service_names_those_that_exist(house: House, honest: tuple[str, str]) -> None:
    request = RetrieveRequest(
        snapshot=house.snapshot, feature_tables=honest[0], definitions=house.definitions(), service="other", as_of=AS_OF
    )
    with pytest.raises(ConfigurationError, match="no feature service 'other': expected one of flight_delay"):
        retrieve_training_set.function(request, house.store)


def test_online_values_are_the_offline_values(house: House, honest: tuple[str, str]) -> None:
    request = MaterializeRequest(
        snapshot=house.snapshot,
        feature_tables=honest[0],
        definitions=house.definitions(),
        project="flights",
        service="flight_delay",
        as_of=AS_OF,
    )
    result = materialize.function(request, house.store)
    assert result.cells > result.values > 5000
    assert result.unseen == ()
    assert (result.verdict, result.differing, result.skew) == ("pass", {}, 0.0)
    assert result.written["aircraft"] > 3000
    assert house.store.read_json(result.report, "skew.json")["skew"] == 0.0
    assert set(materialize.function(request, house.store).written.values()) == {0}


def test_a_value_that_only_the_online_store_has_fails_the_verdict(house: House, honest: tuple[str, str]) -> None:
    request = MaterializeRequest(
        snapshot=house.snapshot,
        feature_tables=honest[0],
        definitions=house.definitions(),
        project="skewed",
        service="flight_delay",
        as_of=AS_OF,
    )
    materialize.function(request, house.store)
    with sqlite3.connect(house.store.local_folder / "online" / "skewed" / "online.db") as connection:
        connection.execute("UPDATE flights_aircraft SET value = NULL WHERE feature_name = 'aircraft_seats'")
    result = materialize.function(request, house.store)
    assert (result.verdict, set(result.differing)) == ("fail", {"aircraft_seats"})
    assert "above the 0.000000 that max_skew allows" in result.reasons[0]
    page = skew_page("flight_delay", house.store.read_json(result.report, "skew.json"))
    assert "aircraft_seats" in page
    assert "3 days, 0:00:00" in page.partition("Freshness")[2]
    assert materialize.function(request.model_copy(update={"max_skew": 0.5}), house.store).verdict == "pass"
    requirement = Requirement(verdict=result.verdict, reasons=result.reasons, report=result.report)
    with pytest.raises(SkewError, match="aircraft_seats"):
        require_no_skew.function(requirement, house.store)
