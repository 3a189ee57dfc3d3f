"""A week of flights in an online store: what is served is what is trained on, and the verdict where it is not."""

import sqlite3

import pytest

from gatehouse.errors import VerdictError
from gatehouse.online.report import page
from gatehouse.online.serving import sqlite_file
from gatehouse.online.stage import MaterializeRequest, materialize
from gatehouse.operations.preparing_stage import Requirement, require
from tests.features.flights import SERVICE, Flights


def request(flights: Flights, project: str, service: str = SERVICE) -> MaterializeRequest:
    manifest = flights.store.manifest(flights.first_week)
    return MaterializeRequest(
        snapshot=manifest.derived_from["snapshot"],
        feature_tables=flights.first_week,
        definitions=manifest.derived_from["definitions"],
        project=project,
        service=service,
        as_of=manifest.details["as_of"],
    )


def test_online_values_are_the_offline_values(flights: Flights) -> None:
    result = materialize.function(request(flights, "flights"), flights.store)
    assert result.cells > result.values > 3000
    assert result.unseen == ()
    assert (result.verdict, result.differing, result.skew) == ("pass", {}, 0.0)
    assert result.written["aircraft"] > 3000
    assert [entry.path for entry in flights.store.manifest(result.report).files] == ["skew.json"]
    again = materialize.function(request(flights, "flights"), flights.store)
    assert set(again.written.values()) == {0}


def test_a_value_that_only_the_online_store_has_fails_the_verdict(flights: Flights) -> None:
    first = request(flights, "skewed")
    materialize.function(first, flights.store)
    with sqlite3.connect(sqlite_file(flights.store, "skewed")) as connection:
        connection.execute("UPDATE flights_aircraft SET value = NULL WHERE feature_name = 'aircraft_seats'")
    result = materialize.function(first, flights.store)
    assert (result.verdict, set(result.differing)) == ("fail", {"aircraft_seats"})
    assert "aircraft_seats" in result.reasons[0]
    shown = page(flights.store, result.report)
    assert "aircraft_seats" in shown
    assert "origin_weather" in shown.partition("Freshness")[2]
    assert materialize.function(first.model_copy(update={"max_skew": 0.5}), flights.store).verdict == "pass"
    requirement = Requirement(verdict=result.verdict, reasons=result.reasons, report=result.report)
    with pytest.raises(VerdictError, match="aircraft_seats"):
        require.function(requirement, flights.store)
