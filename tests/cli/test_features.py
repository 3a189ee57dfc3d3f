"""`gatehouse features` as a person or a program uses it: what is printed, and what is said of bad input."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.online.serving import sqlite_file
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineView
from tests.cli.feature_place import NOON, TIPPED, VIEW, Place, ask


def test_show_lists_the_versions_with_what_changed(place: Place) -> None:
    parent = str(next(iter(place.store.references("feature-tables"))))
    (place.project / "repo/views/trips.sql").write_text(VIEW.replace("upper(town)", "lower(town)"))
    definitions = place.project / "repo/definitions.py"
    definitions.write_text(definitions.read_text().replace("hours=2),", "hours=2), version=2,"))
    place.compute(parent)
    shown = place.json("show", "trips")
    assert [(version["version"], version["changed"]) for version in shown["versions"]] == [
        (1, []),
        (2, ["version: 1 became 2", "code views/trips.sql"]),
    ]
    text = place.run("show", "trips").stdout
    assert "version: 1 became 2" in text and "lower(town) AS town" in text


def test_retrieve_joins_what_was_known_and_keeps_every_row_in_order(place: Place, tmp_path: Path) -> None:
    rows = ask(tmp_path, "8,2013-06-01 12:04:59Z,x", "007,2013-06-01 12:40:00Z,y", "007,2013-06-01 12:10:00Z,z", "9,,")
    done = place.json("retrieve", rows, tmp_path / "out.parquet")
    assert done["views"] == [{"view": "trips", "rows": 2}]
    joined = pq.read_table(tmp_path / "out.parquet").to_pydict()
    # A fare is known five minutes after its ride.
    assert (joined["fare"], joined["note"]) == ([None, 2.5, 1.5, None], ["x", "y", "z", None])
    place.run("retrieve", rows, tmp_path / "out.csv", "--view", "trips", "--view", "trips")
    assert (tmp_path / "out.csv").read_text().splitlines()[2].startswith("007,2013-06-01 12:40:00+00,y,2.5,B")


def test_on_demand_features_are_shown_followed_and_retrieved_with_their_service(place: Place, tmp_path: Path) -> None:
    shown = place.json("show", "tipped")
    assert shown["sql"] == TIPPED and shown["features"] == {"tip_share": "numeric"} and shown["reads"] == ["trips"]
    lineage = place.json("lineage", "tip_share")
    assert lineage == place.json("lineage", "tipped.tip_share")
    assert lineage["known_from"] == "on demand"
    assert lineage["features"]["tipped.tip_share"]["values"] == ["raw.trips.fare", "request.tip"]
    (rows := tmp_path / "rows.csv").write_text("driver,event_timestamp,tip\n007,2013-06-01 12:10:00Z,3\n")
    assert "tip_share" not in place.json("retrieve", rows, tmp_path / "pay.csv")["views"]
    done = place.json("retrieve", rows, tmp_path / "out.parquet", "--service", "whole")
    assert done["views"][1] == {"view": "tipped", "rows": 1}
    assert pq.read_table(tmp_path / "out.parquet")["tip_share"].to_pylist() == [2.0]
    place.run("materialize")
    online = ("retrieve", rows, tmp_path / "on.parquet", "--service", "whole", "--online", "--at", "2013-06-01T13:00Z")
    place.run(*online)
    assert pq.read_table(tmp_path / "on.parquet")["tip_share"].to_pylist() == [pytest.approx(3 / 2.5)]
    lacking = ask(tmp_path, "007,2013-06-01 12:10:00Z,x")
    assert "expected tip among the features" in place.fails(
        "retrieve", lacking, tmp_path / "o.csv", "--service", "whole"
    )


def test_materialize_then_retrieve_online_and_compare(place: Place, tmp_path: Path) -> None:
    rows = ask(tmp_path, "007,,x", "9,,y")
    assert "has no values of trips." in place.fails("skew")
    assert place.json("materialize")["written"] == {"trips": 2}
    place.json("retrieve", rows, tmp_path / "out.parquet", "--online", "--at", "2013-06-01T13:00:00Z")
    assert pq.read_table(tmp_path / "out.parquet")["fare"].to_pylist() == [2.5, None]
    place.run("retrieve", rows, tmp_path / "now.parquet", "--online")
    assert pq.read_table(tmp_path / "now.parquet")["fare"].to_pylist() == [None, None], "it is years later: expired"
    measured = place.json("skew")
    assert measured["skew"] == 0.0 and measured["views"][0]["values"] > 0
    _overwrite(place, 7.0)
    differing = place.json("skew", code=1)["views"][0]
    assert differing["differing"] > 0 and differing["examples"][0]["online"] == "7.0"


def test_a_feature_that_is_served_is_renamed_under_another_version_only(place: Place) -> None:
    place.run("materialize")
    definitions = place.project / "repo/definitions.py"
    definitions.write_text(definitions.read_text().replace('"town"', '"city"'))
    (place.project / "repo/views/trips.sql").write_text(VIEW.replace("AS town", "AS city"))
    place.compute()
    error = place.fails("materialize")
    assert error.startswith("The online store, which holds feature-tables/flights/sha256-")
    assert "trips: feature town removed: expected another version than 1" in error
    definitions.write_text(definitions.read_text().replace("hours=2),", "hours=2), version=2,"))
    place.compute()
    assert place.json("materialize")["verdict"] == "pass"


def _overwrite(place: Place, fare: float) -> None:
    """Another writer puts a fare online that the feature table does not have."""
    moment = pa.array([NOON + timedelta(minutes=50)], pa.timestamp("us", "UTC"))
    view = OnlineView("trips", ("driver",), ("fare",), "event", ttl=timedelta(hours=2))
    rows = pa.table({"driver": ["007"], "event": moment, "fare": pa.array([fare], pa.float32())})
    SqliteOnline(sqlite_file(place.store, "flights"), "flights").write(view, rows)


def test_lineage_as_text_and_json(place: Place) -> None:
    assert "raw.trips.town" in place.run("lineage", "trips.town").stdout
    lineage = place.json("lineage", "trips")
    assert lineage["known_from"] == "event_timestamp + 5 min"
    assert lineage["features"]["trips.fare"] == {
        "values": ["raw.trips.fare"],
        "others": ["raw.trips.driver", "raw.trips.ended", "raw.trips.town"],
        "exact": True,
    }


def test_bad_input_is_told_in_words(place: Place, tmp_path: Path) -> None:
    good, to = ask(tmp_path, "8,2013-06-01 12:10:00Z,x"), tmp_path / "out.parquet"
    (none := tmp_path / "none.csv").write_text("driver,event_timestamp\n")
    (untimed := tmp_path / "untimed.csv").write_text("driver,day\n8,monday\n")
    (twice := tmp_path / "twice.csv").write_text('driver,event_timestamp;,"a, b",A,a\n8,2013-06-01 12:10:00Z,1,2,3\n')
    (hiding := tmp_path / "hiding.csv").write_text("driver,event_timestamp,fare\n8,2013-06-01 12:10:00Z,1\n")
    (broken := tmp_path / "broken.parquet").write_text("not Parquet")
    (folder := tmp_path / "folder.csv").mkdir()
    for arguments, message in (
        (("show", "tips"), "no feature view 'tips': expected one of paid, tipped, trips"),
        (("retrieve", twice, to), "twice.csv: expected every column once, found A, a"),
        (("lineage", "trips.tip"), "no feature 'tip': expected one of fare, town"),
        (("retrieve", tmp_path / "gone.csv", to), "gone.csv: expected a file of entity rows"),
        (("retrieve", none, to), "expected entity rows, found none"),
        (
            ("retrieve", untimed, to),
            r"expected a timestamp in the column event_timestamp, found driver \(string\), day",
        ),
        (("retrieve", good, to, "--time", "note"), "rows.csv: note in row 1: .* found 'x'"),
        (("retrieve", hiding, to), "the features fare would hide columns"),
        (("retrieve", broken, to), r"broken.parquet cannot be read"),
        (("retrieve", good, folder), r"folder\.csv cannot be written"),
        (("materialize", "--as-of", "soon"), "--as-of: expected a time such as"),
        (("materialize", "--as-of", "2099-01-01"), "was computed up to 2013-06-01 13:00:00 UTC; expected a time until"),
    ):
        error = place.fails(*arguments)
        assert re.search(message, error), error


def test_tables_of_other_definitions_are_never_taken_for_those_of_the_present_ones(
    place: Place, tmp_path: Path
) -> None:
    """Of one moment there are tables of three definitions; the digests' order must not choose."""
    query, rows = place.project / "repo/views/trips.sql", ask(tmp_path, "007,2013-06-01 12:40:00Z,x")

    def fare() -> Any:
        place.run("retrieve", rows, tmp_path / "out.parquet")
        return pq.read_table(tmp_path / "out.parquet")["fare"].to_pylist()

    factors = (1, 10, 100)
    for factor in factors:
        query.write_text(VIEW.replace("fare,", f"fare * {factor} AS fare,"))
        place.compute()
    for factor in factors:
        query.write_text(f"-- Of {factor}.\n" + VIEW.replace("fare,", f"fare * {factor}  AS fare,"))
        assert fare() == [2.5 * factor]
        assert [view["differs"] for view in place.json("list")] == ["", ""]
    query.write_text(VIEW.replace("fare,", "fare * 1000 AS fare,"))
    for command in (("retrieve", rows, tmp_path / "o.csv"), ("materialize",), ("skew",)):
        assert "say of trips (views/trips.sql), nor do 3 others of that moment" in place.fails(*command)
    assert place.json("list")[0]["differs"] == "views/trips.sql"


@pytest.mark.parametrize("second", ["02/02/2024", "01/13/2024", "2024-01-13"])
def test_a_time_is_read_by_itself_and_not_by_the_other_rows(place: Place, tmp_path: Path, second: str) -> None:
    rows = ask(tmp_path, "00007,01/02/2024,x", f"00700,{second},y")
    error = place.fails("retrieve", rows, tmp_path / "out.csv", "--view", "trips")
    assert error.startswith("rows.csv: event_timestamp in row 1: ") and "01/02/2024" in error
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("key", ["1.7", "-0.5", "0x1", "1e3", "nan", "true", "9223372036854775808", "1.0", "+1", "1_0"])
@pytest.mark.parametrize("online", [(), ("--online",)])
def test_a_key_that_is_no_whole_number_is_no_other_key(
    place: Place, tmp_path: Path, key: str, online: tuple[str, ...]
) -> None:
    definitions = place.project / "repo/definitions.py"
    definitions.write_text(definitions.read_text().replace('name="driver"', 'name="driver", type="int64"'))
    rows = ask(tmp_path, "1,2013-06-01T12:10:00Z,x", f"{key},2013-06-01T12:10:00Z,y")
    error = place.fails("retrieve", rows, tmp_path / "out.csv", *online)
    assert error.startswith("rows.csv: driver in row 2: ") and repr(key) in error
    times = pa.array([NOON, NOON], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"driver": [2.0, 1.7], "event_timestamp": times}), tmp_path / "keys.parquet")
    error = place.fails("retrieve", tmp_path / "keys.parquet", tmp_path / "out.csv", *online)
    assert error.startswith("keys.parquet: driver in row 2: ") and "1.7" in error
