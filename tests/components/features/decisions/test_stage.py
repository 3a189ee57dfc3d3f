"""Decisions of a week of flights: the rows of the training set without their labels, those without an outcome too."""

from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gatehouse.components.features.decisions.stage import DecisionsRequest, retrieve_decisions
from gatehouse.errors import ConfigurationError
from tests.components.features.flights import SERVICE, Flights

KEY = "flight_id"


def request(flights: Flights, **span: Any) -> DecisionsRequest:
    """A request for decisions of the first week."""
    manifest = flights.store.manifest(flights.first_week)
    inputs = {name: manifest.derived_from[name] for name in ("snapshot", "definitions")}
    asked = {"feature_tables": flights.first_week, "service": SERVICE, "as_of": manifest.details["as_of"]}
    return DecisionsRequest(**inputs, **asked, **span)


def test_they_have_the_features_of_the_training_set_and_no_label(flights: Flights) -> None:
    found = retrieve_decisions.function(request(flights), flights.store)
    table, trained = (pq.read_table(flights.store.paths(each)) for each in (found.decisions, flights.training_set))
    names = [name for name in trained.column_names if name not in ("label", "label_time")]
    assert table.column_names == names and found.rows == table.num_rows > trained.num_rows
    known = table.filter(pc.is_in(table[KEY], trained[KEY].combine_chunks()))
    assert known.sort_by(KEY).equals(trained.select(names).sort_by(KEY))
    assert pc.max(table["decision_time"]).as_py() > pc.max(trained["decision_time"]).as_py()


def test_a_span_begins_with_its_first_moment_and_ends_before_its_last(flights: Flights) -> None:
    def times(**span: str) -> list[Any]:
        found = retrieve_decisions.function(request(flights, **span), flights.store)
        times: list[Any] = pq.read_table(flights.store.paths(found.decisions))["decision_time"].to_pylist()
        return times

    whole = times(since="2013-01-03T12:00:00Z", until="2013-01-03T15:00:00Z")
    first, last = min(whole), max(whole)
    assert times(since=first.isoformat(), until=last.isoformat()) == [each for each in whole if each < last]


@pytest.mark.parametrize(
    ("span", "message"),
    [
        ({"since": "2013-01-05", "until": "2013-01-05"}, "expected since before until"),
        ({"until": "2014-01-01"}, "until at most 2013-01-08"),
        ({"since": "yesterday"}, "since: expected a time such as .* found 'yesterday'"),
        ({"until": "2012-01-01"}, "expected some from the beginning on and before 2012-01-01"),
    ],
)
def test_a_span_that_is_none_is_named(flights: Flights, span: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        retrieve_decisions.function(request(flights, **span), flights.store)
