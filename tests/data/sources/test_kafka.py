"""Reading topics of Kafka, from librdkafka's own broker."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gatehouse.data.sources.catalog import parse_source
from gatehouse.data.sources.kafka import KafkaReader, KafkaSource, Span, spans_of
from gatehouse.errors import DeclarationError, MisfitError, SourceError
from tests.data.sources.reading import COLUMNS, ids, read, take
from tests.kafka_broker import Broker, kafka_broker

AT = "2024-03-01T00:00:00Z"


def source(broker: Broker, columns: dict[str, str] = COLUMNS, topic: str = "orders", **table: Any) -> KafkaSource:
    orders = {"topic": topic, "columns": columns} | table
    body = {"name": "shop", "kind": "kafka", "servers": broker.address, "rows_per_part": 10, "timeout": "PT10S"}
    spec = parse_source(body | {"tables": {"orders": orders}})
    assert isinstance(spec, KafkaSource)
    return spec


def orders(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": number, "item": "té", "at": AT} for number in range(start, stop)]


def test_rows_stand_by_partition_and_offset_and_only_new_ones_are_read(broker: Broker) -> None:
    broker.send("orders", orders(0, 25))
    broker.send("orders", orders(100, 103), partition=2)
    state, parts, rows = take(source(broker))
    assert state["orders"]["offsets"] == {"0": [0, 25], "1": [0, 0], "2": [0, 3], "3": [0, 0]}
    assert [table.num_rows for table in rows.values()] == [10, 10, 5, 3]
    broker.send("orders", orders(25, 32))
    later, grown, more = take(source(broker), parts, rows)
    assert ids(more) == [*range(32), *range(100, 103)] and later != state
    assert [part.fingerprint for part in grown][:2] == [part.fingerprint for part in parts][:2]
    assert ids(take(source(broker))[2]) == ids(more)  # The history of snapshots changes no row.
    assert [part.fingerprint for part in take(source(broker))[1]] == [part.fingerprint for part in grown]


def test_the_record_itself_gives_columns(broker: Broker) -> None:
    began = time.time()
    broker.send("orders", [{"id": 1}], partition=3)
    record = {
        "kafka_partition": "int64",
        "kafka_offset": "int64",
        "kafka_key": "string",
        "kafka_timestamp": "timestamp",
    }
    (row,) = read(source(broker, {"id": "int64"} | record))[2].to_pylist()
    sent = row.pop("kafka_timestamp").timestamp()
    assert row == {"id": 1, "kafka_partition": 3, "kafka_offset": 0, "kafka_key": "k3"} and abs(sent - began) < 60


@pytest.mark.parametrize("value", [b"no json", b"[1]", None, b'{"id": "x", "item": "a", "at": null}'])
def test_a_record_that_does_not_fit_is_named_by_its_offset(broker: Broker, value: bytes | None) -> None:
    broker.send("orders", [*orders(0, 2), value, *orders(3, 5)])
    with pytest.raises(MisfitError, match="orders, partition 0, offset 2"):
        read(source(broker))
    with KafkaReader(source(broker, on_invalid="reject")) as reader:
        (raw,) = [part.read() for part in reader.parts("orders")]
    assert raw.table["id"].to_pylist() == [0, 1, 3, 4] and raw.rejected is not None
    assert raw.rejected["place"].to_pylist() == ["orders, partition 0, offset 2"]


def test_a_topic_that_was_made_anew_is_refused(broker: Broker) -> None:
    broker.send("orders", orders(0, 25))
    parts = take(source(broker))[1]
    with kafka_broker() as other:
        other.send("orders", orders(0, 5))
        with pytest.raises(SourceError, match="made anew"):
            take(source(other), parts)
        time.sleep(0.01)
        other.send("orders", orders(5, 30))
        with pytest.raises(SourceError, match="made anew"):
            take(source(other), parts)


def test_what_cannot_be_read_is_a_clear_error(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = source(broker).model_copy(update={"servers": "127.0.0.1:9", "timeout": source(broker).timeout / 10})
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:9"):
        read(silent)
    broker.send("orders", orders(0, 1))
    with pytest.raises(DeclarationError, match=r"no\.such"):
        read(source(broker).model_copy(update={"options": {"no.such": 1}}))
    with pytest.raises(DeclarationError, match="KAFKA_PASSWORD"):
        read(source(broker).model_copy(update={"options_env": {"sasl.password": "KAFKA_PASSWORD"}}))
    for name in ("sasl.password", "ssl.key.pem"):
        with pytest.raises(ValidationError, match="options_env"):
            KafkaSource.model_validate(source(broker).model_dump() | {"options": {name: "secret"}})
    address = {"sasl.oauthbearer.token.endpoint.url": "https://me:secret@host/token"}
    with pytest.raises(ValidationError, match="password"):
        KafkaSource.model_validate(source(broker).model_dump() | {"options": address})


@given(
    size=st.integers(1, 7),
    looks=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=6),
)
def test_spans_hold_each_offset_once_whatever_kafka_deletes(size: int, looks: list[tuple[int, int]]) -> None:
    """Each look sees more records, and fewer of the old ones that an earlier look took."""
    earlier: tuple[Span, ...] = ()
    high = low = 0
    for added, deleted in looks:
        low, high = min(low + deleted, high), high + added
        spans = tuple(spans_of(0, low, high, size, earlier))
        assert [offset for span in spans for offset in range(span.start, span.stop)] == [*range(high)]
        assert all(span.stop - span.start <= size for span in spans)
        assert all(span in earlier for span in spans if span.start < low)  # These cannot be read any more.
        earlier = spans
    if not low:
        assert earlier == tuple(spans_of(0, 0, high, size, ()))


def test_records_that_were_lost_are_an_error_unless_accepted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.send("orders", orders(0, 25))
    _, parts, rows = take(source(broker))
    broker.send("orders", orders(25, 40))
    monkeypatch.setattr(KafkaReader, "ends", lambda self, table: {0: (28, 40)})
    with pytest.raises(SourceError, match="offset 25"):
        take(source(broker), parts, rows)
    assert ids(take(source(broker, lost="accept"), parts, rows)[2]) == [*range(25), *range(28, 40)]
