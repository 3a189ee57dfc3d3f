"""The check for leakage on a week of flights: honest views pass, and planted leaks are caught."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.leakage import stage as leakage_stage
from gatehouse.features.leakage.replay_pieces import REPLAY, Moment, ReplayRequest, replay
from gatehouse.features.leakage.report import page
from gatehouse.features.leakage.stage import LeakageRequest, LeakageResult, check_leakage
from gatehouse.store.canonical import canonical_json
from tests.features.flights import DAY, START, Flights


def checked(
    flights: Flights,
    changes: Mapping[str, str] | None = None,
    cuts: int = 3,
    unchecked: Mapping[str, str] | None = None,
) -> LeakageResult:
    first = flights.first_week
    snapshot = flights.store.manifest(first).derived_from["snapshot"]
    definitions = flights.definitions(changes)
    feature_tables = flights.compute(snapshot, first, definitions) if changes else first
    request = LeakageRequest(
        snapshot=snapshot,
        feature_tables=feature_tables,
        training_set=flights.retrieve(feature_tables) if changes else flights.training_set,
        definitions=definitions,
        alarm=0.80,
        cuts=cuts,
        unchecked=dict(unchecked or {}),
    )
    return check_leakage.function(request, flights.store)


def test_honest_views_pass(flights: Flights) -> None:
    result = checked(flights)
    assert (result.verdict, result.reasons) == ("pass", ())
    report = flights.store.read_json(result.leakage, "leakage.json")
    replayed = {name for name, status in report["views"].items() if status == "replayed"}
    assert report["views"].keys() - replayed == {"aircraft"} and report["views"]["aircraft"] == "declared static"
    for name in replayed:
        compared = [cut["views"][name] for cut in report["cuts"] if name in cut["views"]]
        assert 3 <= len(compared) <= 4 and sum(rows > 0 for rows in compared) >= 3, name
    assert max(report["single_feature_auc"].values()) < 0.80
    assert [entry.path for entry in flights.store.manifest(result.leakage).files] == ["leakage.json"]
    assert f"of the training set's {report['rows']:,} rows" in page(flights.store, result.leakage).replace("&#39;", "'")


def test_rows_that_were_corrected_later_are_replayed_as_they_were_known(flights: Flights) -> None:
    """On Monday morning most aircraft have their last leg in the file of the week before."""
    until = START + 8 * DAY
    first = flights.compute(flights.snapshot(until, until + DAY))
    sunday = "time_hour BETWEEN TIMESTAMPTZ '2013-01-06 12:00Z' AND TIMESTAMPTZ '2013-01-07 00:00Z'"
    query = f"SELECT * REPLACE (if({sunday}, arr_delay + 100, arr_delay) AS arr_delay) FROM raw.flights"
    snapshot = flights.snapshot(until + DAY, until + 2 * DAY, {"flights": query})
    second = flights.compute(snapshot, first)
    request = ReplayRequest(
        snapshot=snapshot,
        feature_tables=second,
        training_set=flights.retrieve(second),
        definitions=flights.definitions(),
        moments=(Moment(cut=datetime(2013, 1, 7, 14, tzinfo=UTC), views=("aircraft_last_leg",)),),
    )
    replayed = flights.store.read_json(replay.function(request, flights.store).replayed, REPLAY)
    assert replayed["cuts"][0]["rows"] > 100 and replayed["differences"] == []


LEAKS = {
    "aircraft_last_leg.last_leg_delay": (
        ("landed_at AS event_timestamp", "scheduled_at AS event_timestamp"),
        ("GROUP BY tailnum, landed_at", "GROUP BY tailnum, scheduled_at"),
    ),
    "origin_weather.humidity": (("known_at AS event_timestamp", "hour_start AS event_timestamp"),),
    "carrier_traffic.carrier_overdue": (
        ("event_timestamp,\n    overdue", "event_timestamp - INTERVAL 1 HOUR AS event_timestamp,\n    overdue"),
    ),
}


def test_views_stamped_before_they_are_known_are_caught_and_no_others(flights: Flights) -> None:
    planted: dict[str, str] = {}
    for feature, changes in LEAKS.items():
        planted |= flights.changed(f"views/{feature.partition('.')[0]}.sql", *changes)
    result = checked(flights, planted)
    assert result.verdict == "fail"
    for feature in LEAKS:
        assert any(f"{feature} holds what was not known" in reason for reason in result.reasons), feature
    assert {reason.partition(".")[0] for reason in result.reasons} == {leak.partition(".")[0] for leak in LEAKS}
    body = flights.store.read_json(result.leakage, "leakage.json")
    rows = [row for row in body["differences"] if row["where"] == "training set"]
    first = next(row for row in rows if row["feature"] == "humidity")
    shown = page(flights.store, result.leakage)
    assert first["stored"] != first["replayed"] and f"flight_id={first['first']['flight_id']}" in shown
    values = {row[key] for row in body["differences"] for key in ("stored", "replayed")}
    assert "null" in values and "None" not in values
    assert canonical_json(body)


@pytest.mark.parametrize("sensitive", [(), ("tailnum",)])
def test_a_leak_in_a_view_of_few_rows_is_caught(
    flights: Flights, sensitive: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Legs of one aircraft on one day: a cut in the middle of all decisions meets none of them."""
    # The tables of this test have no contract.
    monkeypatch.setattr(leakage_stage, "sensitive_columns", lambda *_: frozenset(sensitive))
    few = flights.changed(
        "views/aircraft_last_leg.sql",
        *LEAKS["aircraft_last_leg.last_leg_delay"],
        ("GROUP BY tailnum", "AND tailnum = 'N730MQ' AND landed_at < TIMESTAMPTZ '2013-01-03' GROUP BY tailnum"),
    )
    result = checked(flights, few, cuts=1)
    assert any("last_leg_delay holds what was not known" in reason for reason in result.reasons)
    for shown in (" ".join(result.reasons), page(flights.store, result.leakage)):
        assert ("N730MQ" in shown) != ("not shown, as columns are sensitive (tailnum)" in shown) == bool(sensitive)


def test_a_view_of_which_no_row_was_compared_is_not_checked(flights: Flights) -> None:
    late = flights.changed(
        "views/aircraft_last_leg.sql", ("GROUP BY", "AND landed_at > TIMESTAMPTZ '2014-01-01' GROUP BY")
    )
    result = checked(flights, late, cuts=1)
    (reason,) = result.reasons
    assert reason.startswith("aircraft_last_leg: not checked")


def test_a_view_whose_tables_have_no_history_is_not_checked(flights: Flights) -> None:
    without = {"known/weather.sql": ""}
    result = checked(flights, without, cuts=1)
    assert result.verdict == "fail"
    (reason,) = result.reasons
    assert reason.startswith("origin_weather: not checked") and "rows of weather" in reason
    assert "not checked" in page(flights.store, result.leakage)
    accepted = checked(flights, without, cuts=1, unchecked={"origin_weather": "Bought once, hour by hour."})
    assert (accepted.verdict, accepted.reasons) == ("pass", ())
    assert "Bought once, hour by hour." in accepted.warnings[0]
    lasting = flights.store.manifest(accepted.leakage).details["warnings"]
    assert lasting == ["origin_weather: not checked, with the reason: Bought once, hour by hour."]
    with pytest.raises(ConfigurationError, match=r"features\.unchecked: expected views .* found wether"):
        checked(flights, without, cuts=1, unchecked={"wether": "Bought."})


def test_a_known_query_that_takes_nothing_away_checks_no_view_that_reads_the_table(flights: Flights) -> None:
    """With `known/` and the view mistaken alike, stored and replayed values agree."""
    planted = {"known/flights.sql": "SELECT * FROM source.flights"}
    planted |= flights.changed("views/aircraft_last_leg.sql", *LEAKS["aircraft_last_leg.last_leg_delay"])
    result = checked(flights, planted, cuts=1)
    views = flights.store.read_json(result.leakage, "leakage.json")["views"]
    assert (views["aircraft_last_leg"], views["origin_weather"]) == ("not checked", "replayed")
    assert any("known/flights.sql takes no row and no value away" in reason for reason in result.reasons)


def test_a_feature_that_predicts_the_label_raises_the_alarm(flights: Flights) -> None:
    planted = flights.changed("views/flight_schedule.sql", ("\n    distance,", "\n    arr_delay AS distance,"))
    (reason,) = (text for text in checked(flights, planted, cuts=1).reasons if text.startswith("distance alone"))
    assert re.search(r"features\.leakage_alarm: (1|0\.9\d*) in project\.yaml", reason)
