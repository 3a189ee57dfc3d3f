"""The training set of a week of flights: its rows, and what its manifest says of its columns."""

import pyarrow as pa
import pyarrow.parquet as pq

from tests.features.flights import Flights


def test_the_manifest_says_what_the_columns_are(flights: Flights) -> None:
    manifest = flights.store.manifest(flights.training_set)
    details = manifest.details
    names = [column.name for column in manifest.columns]
    keys = details["entity_keys"]
    assert names[: len(keys) + 3] == [*keys, "decision_time", "label", "label_time"]
    assert set(names[len(keys) + 3 :]) == {*details["numeric"], *details["categorical"]}
    assert set(details["categorical"]) >= {"airline", "airport", "destination", "weekday"}
    assert details["set_aside"]["cancelled"] > 0
    assert {column.name: column.type for column in manifest.columns}["decision_time"] == "timestamp[us, tz=UTC]"
    tables = flights.views(flights.first_week)
    assert {name: version["table"] for name, version in details["versions"].items()} == tables


def test_every_entity_row_is_kept_once_in_order(flights: Flights) -> None:
    table = pq.read_table(flights.store.paths(flights.training_set))
    order = list(zip(table["decision_time"].to_pylist(), table["flight_id"].to_pylist(), strict=True))
    assert order == sorted(order)
    assert len(set(order)) == table.num_rows > 5_000
    assert table.schema.field("label").type == pa.int8()
