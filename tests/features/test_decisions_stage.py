"""Decisions of a week of flights: the rows of the training set without their labels, those without an outcome too."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.features.decisions_stage import DecisionsRequest, retrieve_decisions
from tests.features.flights import SERVICE, Flights

KEY = "flight_id"
TIME = pa.timestamp("us", "UTC")
YEAR = pa.scalar(365 * 86_400_000_000, pa.duration("us"))


def request(flights: Flights, **span: Any) -> DecisionsRequest:
    manifest = flights.store.manifest(flights.first_week)
    inputs = {name: manifest.derived_from[name] for name in ("snapshot", "definitions")}
    options = {"feature_tables": flights.first_week, "service": SERVICE, "as_of": manifest.details["as_of"]}
    return DecisionsRequest(**inputs, **options, **span)


def test_they_have_the_features_of_the_training_set_and_no_label(flights: Flights) -> None:
    result = retrieve_decisions.function(request(flights), flights.store)
    table, trained = (
        pq.read_table(flights.store.paths(reference)) for reference in (result.decisions, flights.training_set)
    )
    names = [name for name in trained.column_names if name not in ("label", "label_time")]
    assert table.column_names == names and result.rows == table.num_rows > trained.num_rows
    trained_rows = table.filter(pc.is_in(table[KEY], trained[KEY].combine_chunks()))
    assert trained_rows.sort_by(KEY).equals(trained.select(names).sort_by(KEY))
    assert pc.max(table["decision_time"]).as_py() > pc.max(trained["decision_time"]).as_py()


def test_those_whose_label_is_not_there_yet_are_neither_labelled_nor_set_aside_for_good(flights: Flights) -> None:
    every = retrieve_decisions.function(request(flights), flights.store)
    result = retrieve_decisions.function(request(flights, unlabelled=True), flights.store)
    table, all_rows = (pq.read_table(flights.store.paths(answer.decisions)) for answer in (result, every))
    manifest = flights.store.manifest(flights.training_set)
    trained = pq.read_table(flights.store.paths(flights.training_set))
    assert table.column_names == all_rows.column_names
    assert not pc.any(pc.is_in(table[KEY], trained[KEY].combine_chunks())).as_py()
    for_good = sum(manifest.details["set_aside"].get(reason, 0) for reason in ("cancelled", "diverted"))
    assert all_rows.num_rows - trained.num_rows - for_good <= result.rows == table.num_rows
    assert result.rows < all_rows.num_rows - trained.num_rows
    labelled_rows = all_rows.filter(pc.is_in(all_rows[KEY], table[KEY].combine_chunks()))
    assert labelled_rows.sort_by(KEY).equals(table.sort_by(KEY))
    early = request(flights, unlabelled=True).model_copy(update={"as_of": "2012-01-01T00:00:00Z"})
    assert retrieve_decisions.function(early, flights.store).rows == 0


def test_a_span_begins_with_its_first_moment_and_ends_before_its_last(flights: Flights) -> None:
    def times(**span: str) -> list[Any]:
        result = retrieve_decisions.function(request(flights, **span), flights.store)
        times: list[Any] = pq.read_table(flights.store.paths(result.decisions))["decision_time"].to_pylist()
        return times

    whole = times(since="2013-01-03T12:00:00Z", until="2013-01-03T15:00:00Z")
    first, last = min(whole), max(whole)
    assert times(since=first.isoformat(), until=last.isoformat()) == [time for time in whole if time < last]


def published(flights: Flights, table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return str(flights.store.publish("keys", "asked", {"asked.parquet": sink.getvalue().to_pybytes()}))


def with_times(table: pa.Table, times: Any) -> pa.Table:
    return table.set_column(table.column_names.index("decision_time"), "decision_time", times)


def own_keys(flights: Flights) -> pa.Table:
    result = retrieve_decisions.function(request(flights, since="2013-01-03T12:00:00Z"), flights.store)
    table = pq.read_table(flights.store.paths(result.decisions)).slice(3, 40)
    keys = flights.store.manifest(result.decisions).details["entity_keys"]
    values = flights.repository.request_values()
    return table.select([*dict.fromkeys([*keys, "decision_time", *values])])


def test_own_keys_get_the_features_of_their_own_times(flights: Flights) -> None:
    keys = own_keys(flights)
    later = pc.add(keys["decision_time"], pa.scalar(600_000_000, pa.duration("us")))
    moved = with_times(keys, later)
    whole = pq.read_table(flights.store.paths(retrieve_decisions.function(request(flights), flights.store).decisions))
    result = retrieve_decisions.function(request(flights, keys=published(flights, keys)), flights.store)
    table = pq.read_table(flights.store.paths(result.decisions))
    assert result.rows == 40 and table.column_names == whole.column_names
    same = whole.filter(pc.is_in(whole[KEY], keys[KEY].combine_chunks()))
    assert table.sort_by(KEY).equals(same.sort_by(KEY))
    reference = published(flights, moved)
    other = retrieve_decisions.function(request(flights, keys=reference), flights.store)
    manifest = flights.store.manifest(other.decisions)
    assert manifest.derived_from["keys"] == reference
    times = pq.read_table(flights.store.paths(other.decisions))["decision_time"]
    assert sorted(times.to_pylist()) == sorted(later.to_pylist())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["decision_time"]), "decision_time is missing"),
        (lambda table: table.drop_columns([KEY]), f"{KEY} is missing"),
        (
            lambda table: pa.concat_tables([table, table.slice(0, 2)]),
            rf"Rows that repeat a key and time: 2, the first .*{KEY}=.*, decision_time=2013",
        ),
        (
            lambda table: with_times(table, pc.add(table["decision_time"], YEAR)),
            "Rows that are after 2013-01-08.*: 40, the first ",
        ),
        (
            lambda table: with_times(table, pa.nulls(40, TIME)),
            "Rows that lack a key or a time: 40, the first .*decision_time=None",
        ),
        (lambda table: table.slice(0, 0), "expected entity rows, found none"),
        (lambda table: with_times(table, pa.array(["01/02/2013"] * 40)), "decision_time in row 1: "),
    ],
)
def test_keys_that_are_none_of_the_labels_rows_are_named(
    flights: Flights, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    reference = published(flights, change(own_keys(flights)))
    with pytest.raises(ConfigurationError, match=message):
        retrieve_decisions.function(request(flights, keys=reference), flights.store)
